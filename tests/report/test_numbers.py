"""Numbers as people read them."""

import pytest

from leakgauge.report.numbers import bounds, counted, duration, heading, number, percent
from leakgauge.types import Interval


@pytest.mark.parametrize(
    ("metric", "value", "text"),
    [
        ("psnr_mean_per_image", 23.456, "23.5"),
        ("ssim", -0.1, "−0.100"),
        ("mse", 0.00012, "1.20e−04"),
        ("label_accuracy_mean_per_trial", 0.125, "12.5 %"),
        ("asr_label_share_of_trials", 0.125, "12.5 %"),
        ("psnr", None, "–"),
        ("psnr", float("nan"), "–"),
        ("psnr", float("inf"), "∞"),
    ],
)
def test_number(metric, value, text):
    assert number(metric, value) == text


@pytest.mark.parametrize(
    ("share", "text"), [(0.0, "0 %"), (1.0, "100 %"), (0.058, "5.8 %"), (1e-4, "<0.1 %"), (0.9999, ">99.9 %")]
)
def test_percent_never_rounds_a_few_to_none(share, text):
    assert percent(share) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (1e-5, "<0.001 s"),
        (0.0042, "0.0042 s"),
        (0.94, "0.94 s"),
        (0.999, "1.0 s"),
        (14.04, "14.0 s"),
        (99.96, "100 s"),
        (1234.5, "1,234 s"),
    ],
)
def test_a_duration_never_rounds_a_short_time_to_none(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(("value", "text"), [(None, ""), (0.0, "0 steps"), (1.0, "1 step"), (4400.0, "4,400 steps")])
def test_a_count_has_its_noun(value, text):
    assert counted("step", value) == text


def test_bounds_are_empty_where_unknown():
    assert bounds("ssim", Interval(0.5, None, None)) == ""
    assert bounds("ssim", Interval(0.5, 0.4, 0.6)) == "[0.400, 0.600]"


def test_heading_names_the_reduction():
    assert heading("label_accuracy_mean_per_trial") == ("Label accuracy", "mean per trial")
    assert heading("asr_content_share_of_trials") == ("Solved (ASR_c)", "share of trials")
    assert heading("psnr_mean_per_image") == ("PSNR, dB", "mean per image")
