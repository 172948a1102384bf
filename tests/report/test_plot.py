"""Coordinates say what the curves say, and every line can be told from the others."""

import pytest

from leakgauge.metrics.criterion import Criterion
from leakgauge.report.curves import Curve, Curves, Panel, success_curves
from leakgauge.report.numbers import percent
from leakgauge.report.plot import plot

SSIM = Criterion("ssim", 0.6)
MSE = Criterion("mse", 1e-3)


def curve(attack="a", adaptive=False, shares=(1.0, 0.5, 0.0), at=0.25):
    return Curve(f"{attack}, {'adaptive' if adaptive else 'plain'}", attack, adaptive, shares, at)


def drawn(*curves, rule=SSIM, thresholds=(0.0, 0.5, 1.0), floors=()):
    return plot(Curves(rule, thresholds, (Panel("none", curves),), floors))


def points(line):
    return [tuple(map(float, point.split(","))) for point in line.points.split()]


def test_all_recovered_is_at_the_top_and_none_at_the_bottom():
    p = drawn(curve())
    middle = (p.left + p.right) / 2, (p.top + p.bottom) / 2
    assert points(p.charts[0].lines[0]) == [(p.left, p.top), middle, (p.right, p.bottom)]


def test_errors_are_drawn_over_their_decades():
    p = drawn(curve(), rule=MSE, thresholds=(1e-6, 1e-3, 1.0))
    assert [x for x, _ in points(p.charts[0].lines[0])] == [p.left, (p.left + p.right) / 2, p.right]
    assert p.bar == (p.left + p.right) / 2


@pytest.mark.parametrize(
    ("rule", "thresholds", "side"),
    [
        (Criterion("ssim", -0.5), (0.0, 0.5, 1.0), "left"),
        (Criterion("psnr", 20.0), (0.0, 0.5, 1.0), "right"),
        (Criterion("mse", 0.0), (1e-6, 1e-3, 1.0), "left"),
        (Criterion("mse", 50.0), (1e-6, 1e-3, 1.0), "right"),
    ],
)
def test_a_criterion_off_the_axis_stands_at_its_edge(rule, thresholds, side):
    p = drawn(curve(), rule=rule, thresholds=thresholds)
    assert p.bar == getattr(p, side)


@pytest.mark.parametrize(
    ("kind", "shape", "name", "text", "ticks"),
    [
        ("image", (3, 8, 8), "SSIM threshold", "SSIM ≥ 0.6", ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        ("tabular", (30,), "MSE threshold", "MSE ≤ 0.001", ["1e-06", "0.0001", "0.01", "1"]),
    ],
)
def test_axes_are_named_and_ticked_from_edge_to_edge(make, kind, shape, name, text, ticks):
    p = plot(success_curves(make(kind, shape).report))
    assert (p.x_name, p.bar_text) == (name, text)
    assert [t.text for t in p.x_ticks] == ticks
    assert (p.x_ticks[0].at, p.x_ticks[-1].at) == (p.left, p.right)
    gaps = [b.at - a.at for a, b in zip(p.x_ticks, p.x_ticks[1:], strict=False)]
    assert max(gaps) - min(gaps) < 0.3  # evenly spaced but for rounding to a tenth
    assert [(t.at, t.text) for t in p.y_ticks] == [
        (p.bottom, "0 %"),
        ((p.top + p.bottom) / 2, "50 %"),
        (p.top, "100 %"),
    ]


def test_the_criterion_stands_on_its_own_tick(made):
    p = plot(success_curves(made.report))
    assert p.bar == next(t.at for t in p.x_ticks if t.text == "0.6")


def test_every_panel_is_a_chart_with_its_curves_and_the_same_floors(made):
    curves = success_curves(made.report)
    p = plot(curves)
    assert [c.title for c in p.charts] == ["none", "gaussian:std=0.1"]
    for chart, panel in zip(p.charts, curves.panels, strict=True):
        assert [(x.label, x.rate) for x in chart.lines] == [(c.label, percent(c.at_criterion)) for c in panel.curves]
        assert [x.label for x in chart.floors] == ["random-guess", "mean-image"]
        assert all(len(points(x)) == len(curves.thresholds) for x in (*chart.lines, *chart.floors))


def test_without_panels_there_is_no_chart():
    assert plot(Curves(SSIM, (0.0, 1.0), (), ())).charts == ()


def test_an_attack_keeps_its_colour_from_panel_to_panel():
    first, second = Panel("d", (curve("a"), curve("b"))), Panel("e", (curve("b", True), curve("c"), curve("a")))
    charts = plot(Curves(SSIM, (0.0, 0.5, 1.0), (first, second), ())).charts
    colours = [{line.label.split(",")[0]: line.colour for line in chart.lines} for chart in charts]
    assert colours == [{"a": "s0", "b": "s1"}, {"b": "s1", "c": "s2", "a": "s0"}]


def test_plain_and_adaptive_share_a_colour_and_differ_in_dashes():
    plain, adaptive = drawn(curve("a"), curve("a", True)).charts[0].lines
    assert plain.colour == adaptive.colour
    assert plain.dash == ""
    assert adaptive.dash != ""


def test_sixteen_attacks_plain_and_adaptive_all_look_different():
    lines = drawn(*(curve(f"a{i}", adaptive) for i in range(16) for adaptive in (False, True))).charts[0].lines
    assert len({(line.colour, line.dash) for line in lines}) == 32
    assert {line.colour for line in lines} == {f"s{i}" for i in range(8)}  # the style sheet has no more


def test_more_attacks_than_looks_are_still_drawn():
    lines = drawn(*(curve(f"a{i}") for i in range(40))).charts[0].lines
    assert len({line.label for line in lines}) == 40
    assert {line.colour for line in lines} == {f"s{i}" for i in range(8)}


def test_floors_are_told_from_each_other_and_from_attacks():
    chart = drawn(curve("a"), floors=(curve("random-guess"), curve("mean-image"))).charts[0]
    assert {line.colour for line in chart.floors} == {"floor"}
    assert len({line.dash for line in (*chart.lines, *chart.floors)}) == 3


def test_a_curve_that_does_not_fit_the_thresholds_is_refused():
    with pytest.raises(ValueError):
        drawn(curve(shares=(1.0, 0.0)))
