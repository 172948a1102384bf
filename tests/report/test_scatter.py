"""Better is higher up, slower is further right, and every mark can be told from the others."""

import dataclasses
from itertools import pairwise

import pytest

from leakgauge.report.curves import plot, success_curves
from leakgauge.report.scatter import Point, Quality, painted, quality, scatter
from leakgauge.types import Interval

PSNR, MSE = "psnr_mean_per_image", "mse_mean_per_image"


def point(attack="a", seconds=1.0, score=20.0, spread=0.0, adaptive=False):
    label = f"{attack}, {'adaptive' if adaptive else 'plain'}"
    return Point(label, attack, adaptive, seconds, score, score - spread, score + spread)


def drawn(*points, metric=PSNR, floors=(), attacks=()):
    return scatter(Quality(metric, {"none": points}, floors), attacks)


def marks(*points, **more):
    return drawn(*points, **more).charts[0].items


def height_of(line):
    return float(line.points.split()[0].split(",")[1])


def test_slower_is_further_right_by_decades():
    quick, middle, slow = marks(point(seconds=0.1), point(seconds=1.0), point(seconds=10.0))
    assert quick.x < middle.x < slow.x
    assert middle.x - quick.x == pytest.approx(slow.x - middle.x, abs=0.11)


@pytest.mark.parametrize(("metric", "poor", "good"), [(PSNR, 10.0, 30.0), (MSE, 1e-1, 1e-5)])
def test_better_is_higher_up_in_every_metric(metric, poor, good):
    low, high = marks(point(score=poor), point(score=good), metric=metric)
    assert high.y < low.y  # y grows downwards in SVG


def test_the_interval_reaches_to_both_sides_of_its_point():
    (mark,) = marks(point(score=20.0, spread=3.0))
    assert mark.high < mark.y < mark.low
    assert mark.y - mark.high == pytest.approx(mark.low - mark.y, abs=0.11)


@pytest.mark.parametrize("metric", [PSNR, MSE])
def test_everything_stays_inside_the_frame(metric):
    exact = point(score=0.0, seconds=1e-5)  # no error at all, or none of any signal
    found = drawn(exact, point(score=0.5, spread=0.4, seconds=4000), metric=metric, floors=(("mean-image", 0.9),))
    for mark in found.charts[0].items:
        assert found.frame.left < mark.x < found.frame.right
        assert all(found.frame.top < y < found.frame.bottom for y in (mark.y, mark.low, mark.high))
    assert all(found.frame.top < height_of(line) < found.frame.bottom for line in found.charts[0].floors)
    assert all(found.frame.left < t.at < found.frame.right for t in found.x_ticks)
    assert all(found.frame.top < t.at < found.frame.bottom for t in found.y_ticks)


@pytest.mark.parametrize("metric", [PSNR, MSE])
@pytest.mark.parametrize("slowest", [1e-4, 0.1, 1.0, 50.0, 3e3, 8e5])
def test_tick_labels_do_not_touch(metric, slowest):
    found = drawn(point(seconds=1e-4, score=1e-9), point(seconds=slowest, score=0.4), metric=metric)
    width = 6.5  # of one character of 11 px, generously
    ends = [(t.at - len(t.text) * width / 2, t.at + len(t.text) * width / 2) for t in found.x_ticks]
    assert all(a[1] <= b[0] for a, b in pairwise(ends))
    assert ends[-1][1] <= found.frame.width
    heights = sorted(t.at for t in found.y_ticks)
    assert all(b - a >= 12 for a, b in pairwise(heights))
    assert all(len(t.text) * width <= found.frame.left - 6 for t in found.y_ticks)


def test_axes_say_what_they_measure():
    assert drawn(point()).x_name == "seconds per victim"
    assert drawn(point()).y_name == "PSNR, dB, mean per image"
    assert drawn(point(score=0.1), metric=MSE).y_name == "MSE, mean per image (less is higher up)"


def test_all_charts_share_their_axes_and_floors():
    floors = (("random-guess", 8.0), ("mean-image", 12.0))
    groups = {"d": (point("a", score=15.0),), "e": (point("a", score=15.0), point("b", seconds=9.0))}
    first, second = scatter(Quality(PSNR, groups, floors)).charts
    assert first.items[0] == second.items[0]
    assert first.floors == second.floors
    assert [(line.label, line.said) for line in first.floors] == [("random-guess", "8.0 dB"), ("mean-image", "12.0 dB")]
    assert len({line.dash for line in first.floors}) == 2
    assert height_of(first.floors[1]) < height_of(first.floors[0])


def test_an_attack_has_the_colour_of_its_curve(made):
    curves = success_curves(made.report)
    lines = {line.label: line.colour for chart in plot(curves).charts for line in chart.items}
    charts = scatter(quality(made.report), curves.attacks).charts
    assert {mark.label: mark.colour for chart in charts for mark in chart.items} == lines


def test_a_floor_has_the_dashes_of_its_curve_in_whatever_order_they_ran(made):
    report = dataclasses.replace(made.report, summary=made.report.summary[::-1])
    curves = success_curves(report)
    dashes = {line.label: line.dash for line in plot(curves).charts[0].floors}
    assert {line.label: line.dash for line in scatter(quality(report)).charts[0].floors} == dashes


def test_colours_given_out_elsewhere_are_kept():
    first, second = marks(point("new"), point("known"), attacks=("other", "known"))
    assert (first.colour, second.colour) == ("s2", "s1")


def test_plain_and_adaptive_share_a_colour_and_differ_in_shape():
    plain, adaptive = marks(point("a"), point("a", adaptive=True))
    assert plain.colour == adaptive.colour
    assert plain.shape != adaptive.shape
    assert (plain.hollow, adaptive.hollow) == (False, True)


def test_filled_marks_are_painted_over_hollow_ones_and_the_legend_keeps_its_order():
    chart = drawn(point("a"), point("a", adaptive=True), point("b")).charts[0]
    assert [m.label for m in chart.items] == ["a, plain", "a, adaptive", "b, plain"]
    assert [m.label for m in painted(chart.items)] == ["a, adaptive", "a, plain", "b, plain"]


def test_sixteen_attacks_plain_and_adaptive_all_look_different():
    found = marks(*(point(f"a{i}", adaptive=adaptive) for i in range(16) for adaptive in (False, True)))
    assert len({(m.colour, m.shape) for m in found}) == 32
    assert {m.colour for m in found} == {f"s{i}" for i in range(8)}  # the style sheet has no more


def test_more_attacks_than_looks_are_still_drawn():
    assert len(marks(*(point(f"a{i}") for i in range(40)))) == 40


def test_a_mark_says_its_score_and_time():
    assert marks(point(score=19.94, seconds=1.26))[0].said == "19.9 dB in 1.3 s"
    assert Quality(MSE, {}, ()).said(1.2e-4, 130.0) == "1.20e−04 in 130 s"
    assert Quality(PSNR, {}, ()).said(9.0) == "9.0 dB"


def test_without_points_there_is_no_chart():
    assert scatter(Quality(PSNR, {}, (("mean-image", 9.0),))).charts == ()


# --- the numbers behind it ------------------------------------------------------------

DEFENDED = "gaussian:std=0.1"


def labels(report):
    return {defense: [p.label for p in points] for defense, points in quality(report).groups.items()}


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
    for defense, points in found.groups.items():
        for p in points:
            assert Interval(p.score, p.low, p.high) == rows[p.attack, defense, p.adaptive]


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
    assert [p.seconds for p in quality(made.report).groups[DEFENDED]] == [1.25, 1.25]


def test_without_an_interval_the_point_stands_alone(made):
    report = changed(made.report, "dlg", rows={"metrics": {"psnr_mean_per_image": Interval(20.0, None, None)}})
    point = quality(report).groups["none"][0]
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
    assert quality(dataclasses.replace(made.report, summary=())).groups == {}


def test_floors_come_from_any_row_that_has_them(made):
    first, *rest = made.report.summary
    report = dataclasses.replace(made.report, summary=(dataclasses.replace(first, floor={}), *rest))
    assert dict(quality(report).floors) == {"random-guess": 9, "mean-image": 9}
    bare = tuple(dataclasses.replace(r, floor={}) for r in made.report.summary)
    assert quality(dataclasses.replace(made.report, summary=bare)).floors == ()
