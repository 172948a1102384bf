"""The criterion on the page is the one that the summary was counted with."""

import dataclasses
import math

import pytest

from leakgauge import catalog
from leakgauge.report.criterion import Criterion, criterion
from leakgauge.types import CRITERION, DataSpec
from leakgauge.verdict.summary import criterion as words


def counted_with(report, *texts):
    rows = [
        dataclasses.replace(row, success_rate=dataclasses.replace(row.success_rate, criterion=text))
        for row, text in zip(report.summary, texts, strict=False)
    ]
    return dataclasses.replace(report, summary=tuple(rows))


@pytest.mark.parametrize(
    ("text", "metric", "threshold"),
    [
        ("ssim>=0.6", "ssim", 0.6),
        ("mse<=0.001", "mse", 1e-3),
        ("mse<=1e-05", "mse", 1e-5),
        ("mse <= 1E+2", "mse", 100.0),
        (" psnr > -3 ", "psnr", -3.0),
    ],
)
def test_words_are_read_back(made, text, metric, threshold):
    assert criterion(counted_with(made.report, text)) == Criterion(metric, threshold)


@pytest.mark.parametrize("kind", CRITERION)
def test_the_words_of_the_verdict_are_read_back(made, kind):
    text = words(DataSpec("x", (1,), 2, kind))
    assert criterion(counted_with(made.report, text)) == Criterion(*CRITERION[kind])


def test_the_first_row_that_can_be_read_decides(made):
    assert criterion(counted_with(made.report, "", "by eye", "ssim>=0.7", "ssim>=0.8")) == Criterion("ssim", 0.7)


@pytest.mark.parametrize("text", ["ssim>=e", "ssim>=-", "ssim>=0.6.1"])
def test_what_is_no_number_is_passed_over(made, text):
    assert criterion(counted_with(made.report, text, "ssim>=0.7")) == Criterion("ssim", 0.7)


def test_a_metric_with_a_dash_in_its_name_is_read_back(made):
    assert criterion(counted_with(made.report, "lpips-vgg<=0.1")) == Criterion("lpips-vgg", 0.1)


@pytest.mark.parametrize(("kind", "shape"), [("image", (3, 8, 8)), ("tabular", (30,))])
def test_without_rows_the_default_of_this_kind_of_data_holds(make, kind, shape):
    report = dataclasses.replace(make(kind, shape).report, summary=())
    assert criterion(report) == Criterion(*CRITERION[kind])


@pytest.mark.parametrize("metric", ["ssim", "psnr", "mse", "lpips", "mae", "lpips-vgg"])
def test_direction_is_the_metrics_own(metric):
    assert Criterion(metric, 0.5).higher_is_better == catalog.get("metrics", metric).higher_is_better


@pytest.mark.parametrize(
    ("metric", "value", "met"),
    [("ssim", 0.6, True), ("ssim", 0.59, False), ("mse", 0.6, True), ("mse", 0.61, False), ("mse", 0.0, True)],
)
def test_the_threshold_itself_counts_as_recovered(metric, value, met):
    assert Criterion(metric, 0.6).met({metric: value}) is met


def test_another_threshold_replaces_the_own_even_if_it_is_zero():
    rule = Criterion("ssim", 0.6)
    assert rule.met({"ssim": 0.1}, 0.0)
    assert not rule.met({"ssim": 0.7}, 0.8)


@pytest.mark.parametrize("metric", ["ssim", "mse"])
@pytest.mark.parametrize("score", [None, math.nan, "absent"])
def test_a_record_without_the_score_is_not_recovered_and_ranks_last(metric, score):
    record = {"other": 1.0} if score == "absent" else {metric: score}
    rule = Criterion(metric, 0.5)
    assert not rule.met(record)
    assert rule.rank(record) == math.inf


@pytest.mark.parametrize(("metric", "best"), [("ssim", 0.9), ("mse", 0.1)])
def test_the_best_recovered_ranks_first(metric, best):
    rule = Criterion(metric, 0.5)
    assert min(({metric: v} for v in (0.1, 0.5, 0.9)), key=rule.rank) == {metric: best}
