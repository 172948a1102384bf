"""Two audits: differences with intervals, sharper where the same victims were attacked, none where none makes sense."""

import dataclasses

import numpy as np
import pytest

from leakgauge.metrics.intervals import rate
from leakgauge.report import to_comparison
from leakgauge.report.comparison import compare, excludes_zero, mean_difference, rate_difference
from leakgauge.types import Interval


def test_an_audit_differs_from_itself_in_nothing(made):
    found = compare(made.report, made.report)
    assert found.settings == ()
    assert found.paired
    assert found.doubts == ()
    assert [(d.attack, d.defense, d.adaptive) for d in found.differences] == [
        ("dlg", "none", False),
        ("inverting-gradients", "none", False),
        ("dlg", "gaussian:std=0.1", False),
        ("inverting-gradients", "gaussian:std=0.1", True),
    ]
    for d in found.differences:
        assert d.rate.value == d.score.value == 0
        assert not excludes_zero(d.rate)
        assert not excludes_zero(d.score)
        assert d.score == Interval(0.0, 0.0, 0.0), "victim by victim there is no doubt about it"


def test_newcombes_published_example():
    """56 of 70 against 48 of 80: 0.2000, from 0.0524 to 0.3339 (Newcombe 1998, table II, method 10)."""
    found = rate_difference(rate(48, 80, ""), rate(56, 70, ""))
    assert (found.value, found.low, found.high) == pytest.approx((0.2, 0.0524, 0.3339), abs=1e-4)


def test_none_against_all_keeps_an_interval():
    found = rate_difference(rate(0, 6, ""), rate(6, 6, ""))
    assert found.value == 1
    assert 0.3 < found.low < 0.7
    assert found.high == 1
    assert excludes_zero(found)
    assert rate_difference(rate(0, 0, ""), rate(6, 6, "")) == Interval(None, None, None)


def test_the_interval_of_a_rate_covers_the_truth_as_often_as_it_says():
    draw, inside = np.random.default_rng(1), 0
    for _ in range(400):
        a, b = draw.binomial(20, 0.3), draw.binomial(20, 0.6)
        found = rate_difference(rate(int(a), 20, ""), rate(int(b), 20, ""))
        inside += found.low <= 0.3 <= found.high
    assert 0.92 <= inside / 400 <= 0.99


def test_pairs_are_sharper_than_two_samples():
    draw = np.random.default_rng(0)
    first = dict(enumerate(draw.normal(0.5, 0.3, 30).tolist()))
    second = {t: v + 0.05 for t, v in first.items()}
    pairs, apart = (mean_difference(first, second, paired) for paired in (True, False))
    assert pairs.value == pytest.approx(apart.value)
    assert pairs.high - pairs.low < 1e-9
    assert apart.high - apart.low > 0.1
    assert excludes_zero(pairs)
    assert not excludes_zero(apart)


def test_only_trials_that_both_have_are_paired():
    assert mean_difference({0: 1.0, 1: 5.0}, {0: 2.0, 2: 9.0}, True) == Interval(1.0, None, None)
    assert mean_difference({0: 1.0}, {1: 1.0}, True) == Interval(None, None, None)


def test_other_victims_are_not_paired_and_what_differs_is_said(made):
    scenario = dataclasses.replace(made.report.scenario, seed=5, model="mlp")
    found = compare(made.report, dataclasses.replace(made.report, scenario=scenario))
    assert not found.paired
    assert found.settings == (("model", "lenet-dlg", "mlp"), ("seed", "0", "5"))


def test_what_only_one_audit_has_stays_in_the_list(made):
    fewer = dataclasses.replace(made.report, summary=made.report.summary[1:])
    first = compare(made.report, fewer).differences[0]
    assert first.second is None
    assert first.rate == first.score == Interval(None, None, None)
    assert compare(fewer, made.report).differences[-1].attack == "dlg"


def test_pictures_and_tables_are_not_compared(made, make):
    found = compare(made.report, make("tabular", (30,)).report)
    assert found.doubts == ("one audit is of image data, the other of tabular data",)
    assert all(d.rate.value is None for d in found.differences)


# --- the page -------------------------------------------------------------------------------------

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"


def test_both_tables_and_the_differences_are_on_it(made):
    rows = tuple(
        dataclasses.replace(r, success_rate=dataclasses.replace(r.success_rate, value=0.0, recovered=0))
        for r in made.report.summary
    )
    text = to_comparison(made.report, dataclasses.replace(made.report, summary=rows), ("runs/a", "runs/b"))
    assert text.count('<table class="results">') == 2
    assert text.count("runs/a") >= 3
    assert "compared victim by victim" in text
    assert "both scenarios are the same" in text
    assert "−100.0" in text


def test_attacks_with_other_settings_name_them(made):
    findings = tuple(dataclasses.replace(f, spec=f"{f.attack}:steps=9") for f in made.report.findings)
    text = to_comparison(made.report, dataclasses.replace(made.report, findings=findings), ("a", "b"))
    assert "<small>first: dlg</small><small>second: dlg:steps=9</small>" in text


def test_what_cannot_be_compared_is_said_at_the_top(made, make):
    text = to_comparison(made.report, make("tabular", (30,)).report, ("a", "b"))
    assert "Not comparable:" in text
    assert "no difference was computed" in text


def test_an_attack_that_only_one_audit_has_was_not_measured_in_the_other(made):
    fewer = dataclasses.replace(made.report, summary=made.report.summary[1:])
    assert "not measured" in to_comparison(made.report, fewer, ("a", "b"))


def test_an_attack_that_could_not_run_or_claims_no_records_says_so(made, labels_only):
    failed = dataclasses.replace(made.report.summary[1], error="needs no pooling")
    report = dataclasses.replace(labels_only, summary=(labels_only.summary[0], failed, *labels_only.summary[2:]))
    text = to_comparison(report, report, ("a", "b"))
    assert "could not run" in text
    assert "claims no records" in text


def test_everything_user_given_is_escaped(made):
    scenario = dataclasses.replace(made.report.scenario, data=HOSTILE, weights=HOSTILE)
    summary = tuple(dataclasses.replace(r, attack=HOSTILE, defense=HOSTILE) for r in made.report.summary)
    report = dataclasses.replace(made.report, scenario=scenario, summary=summary)
    text = to_comparison(made.report, report, (HOSTILE, HOSTILE))
    assert text.count("<script") == 1
    assert "<img" not in text
    assert "http" not in text.replace("http-equiv", "")


def test_the_same_audits_give_the_same_bytes(made):
    assert to_comparison(made.report, made.report, ("a", "b")) == to_comparison(made.report, made.report, ("a", "b"))
