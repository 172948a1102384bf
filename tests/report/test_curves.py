"""Success curves count what the summary counts, failed trials included."""

import dataclasses

import pytest

from leakgauge.metrics.criterion import Criterion
from leakgauge.report.curves import Curve, Curves, plot, success_curves
from leakgauge.report.numbers import percent


@pytest.mark.parametrize("kind", ["image", "tabular"])
def test_share_at_the_criterion_is_the_success_rate(make, kind):
    report = make(kind, (3, 8, 8) if kind == "image" else (30,)).report
    curves = success_curves(report)
    rates = {(r.attack, r.defense, r.adaptive): r.success_rate.value for r in report.summary}
    assert len(curves.panels) == 2
    for defense, panel in curves.panels.items():
        for curve in panel:
            assert curve.at_criterion == rates[curve.attack, defense, curve.adaptive]
    assert [c.attack for c in curves.floors] == ["random-guess", "mean-image"]


def test_failed_trials_count_as_not_recovered(made):
    findings = tuple(
        dataclasses.replace(f, records=(), error="lost") if f.trial > 0 else f for f in made.report.findings
    )
    curves = success_curves(dataclasses.replace(made.report, findings=findings))
    best = next(c for c in curves.panels["none"] if c.attack == "inverting-gradients")
    assert best.at_criterion == pytest.approx(1 / 3)


def test_shares_fall_as_the_bar_rises(made):
    for panel in success_curves(made.report).panels.values():
        for curve in panel:
            assert list(curve.shares) == sorted(curve.shares, reverse=True)


def test_an_attack_that_never_ran_or_claims_no_inputs_has_no_curve(made):
    blank = [{"mse": None, "psnr": None, "ssim": None}]
    findings = tuple(
        dataclasses.replace(f, records=tuple(blank)) if f.attack == "dlg" else f for f in made.report.findings
    )
    rows = tuple(
        dataclasses.replace(r, error="no") if r.attack == "inverting-gradients" else r for r in made.report.summary
    )
    curves = success_curves(dataclasses.replace(made.report, findings=findings, summary=rows))
    assert [c for panel in curves.panels.values() for c in panel if c.attack == "inverting-gradients"] == []
    assert [c for c in curves.panels.get("none", ()) if c.attack == "dlg"] == []


def test_plot_stays_inside_its_frame(made):
    drawn = plot(success_curves(made.report))
    for chart in drawn.charts:
        for line in (*chart.items, *chart.floors):
            for point in line.points.split():
                x, y = map(float, point.split(","))
                assert drawn.frame.left <= x <= drawn.frame.right
                assert drawn.frame.top <= y <= drawn.frame.bottom
    assert len({line.colour for line in drawn.charts[0].items}) == 2


# --- the same as coordinates ------------------------------------------------------------

SSIM = Criterion("ssim", 0.6)
MSE = Criterion("mse", 1e-3)


def curve(attack="a", adaptive=False, shares=(1.0, 0.5, 0.0), at=0.25):
    return Curve(f"{attack}, {'adaptive' if adaptive else 'plain'}", attack, adaptive, shares, at)


def drawn(*curves, rule=SSIM, thresholds=(0.0, 0.5, 1.0), floors=()):
    return plot(Curves(rule, thresholds, {"none": curves}, floors))


def points(line):
    return [tuple(map(float, point.split(","))) for point in line.points.split()]


def test_all_recovered_is_at_the_top_and_none_at_the_bottom():
    p = drawn(curve())
    middle = (p.frame.left + p.frame.right) / 2, (p.frame.top + p.frame.bottom) / 2
    assert points(p.charts[0].items[0]) == [(p.frame.left, p.frame.top), middle, (p.frame.right, p.frame.bottom)]


def test_errors_are_drawn_over_their_decades():
    p = drawn(curve(), rule=MSE, thresholds=(1e-6, 1e-3, 1.0))
    assert [x for x, _ in points(p.charts[0].items[0])] == [
        p.frame.left,
        (p.frame.left + p.frame.right) / 2,
        p.frame.right,
    ]
    assert p.bar == (p.frame.left + p.frame.right) / 2


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
    assert p.bar == getattr(p.frame, side)


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
    assert (p.x_ticks[0].at, p.x_ticks[-1].at) == (p.frame.left, p.frame.right)
    gaps = [b.at - a.at for a, b in zip(p.x_ticks, p.x_ticks[1:], strict=False)]
    assert max(gaps) - min(gaps) < 0.3  # evenly spaced but for rounding to a tenth
    assert [(t.at, t.text) for t in p.y_ticks] == [
        (p.frame.bottom, "0 %"),
        ((p.frame.top + p.frame.bottom) / 2, "50 %"),
        (p.frame.top, "100 %"),
    ]


def test_the_criterion_stands_on_its_own_tick(made):
    p = plot(success_curves(made.report))
    assert p.bar == next(t.at for t in p.x_ticks if t.text == "0.6")


def test_every_panel_is_a_chart_with_its_curves_and_the_same_floors(made):
    curves = success_curves(made.report)
    p = plot(curves)
    assert [c.title for c in p.charts] == ["none", "gaussian:std=0.1"]
    for chart, panel in zip(p.charts, curves.panels.values(), strict=True):
        assert [(x.label, x.said) for x in chart.items] == [(c.label, percent(c.at_criterion)) for c in panel]
        assert [x.label for x in chart.floors] == ["random-guess", "mean-image"]
        assert all(len(points(x)) == len(curves.thresholds) for x in (*chart.items, *chart.floors))


def test_without_panels_there_is_no_chart():
    assert plot(Curves(SSIM, (0.0, 1.0), {}, ())).charts == ()


def test_an_attack_keeps_its_colour_from_panel_to_panel():
    panels = {"d": (curve("a"), curve("b")), "e": (curve("b", True), curve("c"), curve("a"))}
    charts = plot(Curves(SSIM, (0.0, 0.5, 1.0), panels, ())).charts
    colours = [{line.label.split(",")[0]: line.colour for line in chart.items} for chart in charts]
    assert colours == [{"a": "s0", "b": "s1"}, {"b": "s1", "c": "s2", "a": "s0"}]


def test_plain_and_adaptive_share_a_colour_and_differ_in_dashes():
    plain, adaptive = drawn(curve("a"), curve("a", True)).charts[0].items
    assert plain.colour == adaptive.colour
    assert plain.dash == ""
    assert adaptive.dash != ""


def test_sixteen_attacks_plain_and_adaptive_all_look_different():
    lines = drawn(*(curve(f"a{i}", adaptive) for i in range(16) for adaptive in (False, True))).charts[0].items
    assert len({(line.colour, line.dash) for line in lines}) == 32
    assert {line.colour for line in lines} == {f"s{i}" for i in range(8)}  # the style sheet has no more


def test_more_attacks_than_looks_are_still_drawn():
    lines = drawn(*(curve(f"a{i}") for i in range(40))).charts[0].items
    assert len({line.label for line in lines}) == 40
    assert {line.colour for line in lines} == {f"s{i}" for i in range(8)}


def test_floors_are_told_from_each_other_and_from_attacks():
    chart = drawn(curve("a"), floors=(curve("random-guess"), curve("mean-image"))).charts[0]
    assert {line.colour for line in chart.floors} == {"floor"}
    assert len({line.dash for line in (*chart.items, *chart.floors)}) == 3


def test_a_curve_that_does_not_fit_the_thresholds_is_refused():
    with pytest.raises(ValueError):
        drawn(curve(shares=(1.0, 0.0)))
