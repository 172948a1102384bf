"""Better is higher up, slower is further right, and every mark can be told from the others."""

import dataclasses
from itertools import pairwise

import pytest

from leakgauge.report.curves import success_curves
from leakgauge.report.plot import plot
from leakgauge.report.quality import Group, Point, Quality, quality
from leakgauge.report.scatter import said, scatter

PSNR, MSE = "psnr_mean_per_image", "mse_mean_per_image"


def point(attack="a", seconds=1.0, score=20.0, spread=0.0, adaptive=False):
    label = f"{attack}, {'adaptive' if adaptive else 'plain'}"
    return Point(label, attack, adaptive, seconds, score, score - spread, score + spread)


def drawn(*points, metric=PSNR, floors=(), attacks=()):
    return scatter(Quality(metric, (Group("none", points),), floors), attacks)


def marks(*points, **more):
    return drawn(*points, **more).charts[0].marks


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
    for mark in found.charts[0].marks:
        assert found.left < mark.x < found.right
        assert all(found.top < y < found.bottom for y in (mark.y, mark.low, mark.high))
    assert all(found.top < line.y < found.bottom for line in found.charts[0].floors)
    assert all(found.left < t.at < found.right for t in found.x_ticks)
    assert all(found.top < t.at < found.bottom for t in found.y_ticks)


@pytest.mark.parametrize("metric", [PSNR, MSE])
@pytest.mark.parametrize("slowest", [1e-4, 0.1, 1.0, 50.0, 3e3, 8e5])
def test_tick_labels_do_not_touch(metric, slowest):
    found = drawn(point(seconds=1e-4, score=1e-9), point(seconds=slowest, score=0.4), metric=metric)
    width = 6.5  # of one character of 11 px, generously
    ends = [(t.at - len(t.text) * width / 2, t.at + len(t.text) * width / 2) for t in found.x_ticks]
    assert all(a[1] <= b[0] for a, b in pairwise(ends))
    assert ends[-1][1] <= found.width
    heights = sorted(t.at for t in found.y_ticks)
    assert all(b - a >= 12 for a, b in pairwise(heights))
    assert all(len(t.text) * width <= found.left - 6 for t in found.y_ticks)


def test_axes_say_what_they_measure():
    assert drawn(point()).x_name == "seconds per victim"
    assert drawn(point()).y_name == "PSNR, dB, mean per image"
    assert drawn(point(score=0.1), metric=MSE).y_name == "MSE, mean per image (less is higher up)"


def test_all_charts_share_their_axes_and_floors():
    floors = (("random-guess", 8.0), ("mean-image", 12.0))
    groups = (Group("d", (point("a", score=15.0),)), Group("e", (point("a", score=15.0), point("b", seconds=9.0))))
    first, second = scatter(Quality(PSNR, groups, floors)).charts
    assert first.marks[0] == second.marks[0]
    assert first.floors == second.floors
    assert [(line.label, line.said) for line in first.floors] == [("random-guess", "8.0 dB"), ("mean-image", "12.0 dB")]
    assert len({line.dash for line in first.floors}) == 2
    assert first.floors[1].y < first.floors[0].y


def test_an_attack_has_the_colour_of_its_curve(made):
    curves = success_curves(made.report)
    lines = {line.label: line.colour for chart in plot(curves).charts for line in chart.lines}
    charts = scatter(quality(made.report), curves.attacks).charts
    assert {mark.label: mark.colour for chart in charts for mark in chart.marks} == lines


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
    assert [m.label for m in chart.marks] == ["a, plain", "a, adaptive", "b, plain"]
    assert [m.label for m in chart.painted] == ["a, adaptive", "a, plain", "b, plain"]


def test_sixteen_attacks_plain_and_adaptive_all_look_different():
    found = marks(*(point(f"a{i}", adaptive=adaptive) for i in range(16) for adaptive in (False, True)))
    assert len({(m.colour, m.shape) for m in found}) == 32
    assert {m.colour for m in found} == {f"s{i}" for i in range(8)}  # the style sheet has no more


def test_more_attacks_than_looks_are_still_drawn():
    assert len(marks(*(point(f"a{i}") for i in range(40)))) == 40


def test_a_mark_says_its_score_and_time():
    assert marks(point(score=19.94, seconds=1.26))[0].said == "19.9 dB in 1.3 s"
    assert said(Quality(MSE, (), ()), 1.2e-4, 130.0) == "1.20e−04 in 130 s"
    assert said(Quality(PSNR, (), ()), 9.0) == "9.0 dB"


def test_without_points_there_is_no_chart():
    assert scatter(Quality(PSNR, (), (("mean-image", 9.0),))).charts == ()
