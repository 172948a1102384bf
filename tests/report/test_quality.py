"""One point for every attack that ran, took time and claims inputs; the floors beside them."""

import dataclasses

import pytest

from leakgauge.report.quality import quality
from leakgauge.types import Interval

DEFENDED = "gaussian:std=0.1"


def labels(report):
    return {group.defense: [p.label for p in group.points] for group in quality(report).groups}


def changed(report, attack, *, rows=None, findings=None):
    """The report with other rows and findings of one attack."""
    return dataclasses.replace(
        report,
        summary=tuple(dataclasses.replace(r, **rows or {}) if r.attack == attack else r for r in report.summary),
        findings=tuple(dataclasses.replace(f, **findings or {}) if f.attack == attack else f for f in report.findings),
    )


@pytest.mark.parametrize(
    ("kind", "shape", "metric"), [("image", (3, 8, 8), "psnr_mean_per_image"), ("tabular", (30,), "mse_mean_per_image")]
)
def test_each_point_is_its_rows_mean_and_interval(make, kind, shape, metric):
    report = make(kind, shape).report
    found = quality(report)
    assert found.metric == metric
    rows = {(r.attack, r.defense, r.adaptive): r.metrics[metric] for r in report.summary}
    for group in found.groups:
        for p in group.points:
            assert Interval(p.score, p.low, p.high) == rows[p.attack, group.defense, p.adaptive]


def test_points_are_grouped_by_defense_and_the_floors_stand_apart(made):
    assert labels(made.report) == {
        "none": ["dlg, plain", "inverting-gradients, plain"],
        DEFENDED: ["dlg, plain", "inverting-gradients, adaptive"],
    }
    assert quality(made.report).floors == (("random-guess", 9), ("mean-image", 9))


def test_the_quickest_comes_first(made):
    report = changed(made.report, "dlg", findings={"seconds": 9.0})
    assert labels(report)["none"] == ["inverting-gradients, plain", "dlg, plain"]


def test_seconds_are_shared_over_the_victims_that_ran(made):
    """The failed trial took no time: it must not make the two others look quicker."""
    group = quality(made.report).groups[1]
    assert [p.seconds for p in group.points] == [1.25, 1.25]


def test_without_an_interval_the_point_stands_alone(made):
    report = changed(made.report, "dlg", rows={"metrics": {"psnr_mean_per_image": Interval(20.0, None, None)}})
    point = quality(report).groups[0].points[0]
    assert (point.low, point.score, point.high) == (20.0, 20.0, 20.0)


@pytest.mark.parametrize(
    "change",
    [
        {"rows": {"error": "needs no pooling"}},
        {"rows": {"metrics": {}}},
        {"rows": {"metrics": {"psnr_mean_per_image": Interval(None, None, None)}}},
        {"findings": {"seconds": 0.0}},
        {"findings": {"error": "lost"}},
    ],
)
def test_an_attack_that_did_not_run_took_no_time_or_claims_no_inputs_is_left_out(made, change):
    assert labels(changed(made.report, "dlg", **change)) == {
        "none": ["inverting-gradients, plain"],
        DEFENDED: ["inverting-gradients, adaptive"],
    }


def test_a_configuration_without_points_is_left_out(made):
    rows = tuple(dataclasses.replace(r, error="no") if r.defense == DEFENDED else r for r in made.report.summary)
    assert list(labels(dataclasses.replace(made.report, summary=rows))) == ["none"]
    assert quality(dataclasses.replace(made.report, summary=())).groups == ()


def test_floors_come_from_any_row_that_has_them(made):
    first, *rest = made.report.summary
    report = dataclasses.replace(made.report, summary=(dataclasses.replace(first, floor={}), *rest))
    assert dict(quality(report).floors) == {"random-guess": 9, "mean-image": 9}
    bare = tuple(dataclasses.replace(r, floor={}) for r in made.report.summary)
    assert quality(dataclasses.replace(made.report, summary=bare)).floors == ()
