"""Objectives: relative to their start, the median victim, nothing drawn where there is nothing to draw."""

import dataclasses

import pytest

from leakgauge.report.objectives import objectives, small_curve


def with_traces(report, traces):
    """The undefended dlg with one trace per trial, all else without."""
    findings = tuple(
        dataclasses.replace(f, trace=traces[f.trial] if (f.attack, f.defense) == ("dlg", "none") else ())
        for f in report.findings
    )
    return dataclasses.replace(report, findings=findings)


def ys(points):
    return [float(point.split(",")[1]) for point in points.split()]


def test_a_falling_objective_runs_down_the_chart_from_its_start(made):
    (chart,) = objectives(with_traces(made.report, [(10.0, 1.0, 0.1)] * 3)).charts
    (fall,) = chart.items
    assert chart.title == "none"
    assert fall.label == "dlg, plain"
    assert fall.said == "to 0.01, n = 3"
    assert ys(fall.points) == sorted(ys(fall.points))  # SVG counts downwards


def test_victims_of_different_scale_and_length_are_set_beside_one_another(made):
    report = with_traces(made.report, [(10.0, 1.0), (1000.0, 500.0, 100.0), (2.0, 0.2)])
    assert objectives(report).charts[0].items[0].said == "to 0.1, n = 3"


@pytest.mark.parametrize("trace", [(), (3.0,), (0.0, 0.0), (-1.0, -2.0)])
def test_what_has_no_way_down_is_not_drawn(made, trace):
    assert objectives(with_traces(made.report, [trace] * 3)).charts == ()


def test_an_objective_that_reaches_zero_stays_on_the_chart(made):
    drawn = objectives(with_traces(made.report, [(1.0, 0.0)] * 3))
    assert max(ys(drawn.charts[0].items[0].points)) <= drawn.frame.bottom


def test_colours_are_those_given_out_before(made):
    falls = objectives(made.report, ("inverting-gradients", "dlg")).charts[0].items
    assert {f.label: f.colour for f in falls} == {"dlg, plain": "s1", "inverting-gradients, plain": "s0"}


def test_a_failed_trial_has_no_part_in_it(made):
    defended = objectives(made.report).charts[1]
    assert [f.said.split("n = ")[1] for f in defended.items] == ["2", "3"]


def test_one_trial_as_a_small_curve():
    curve = small_curve((4.0, 3.0, 2.0))
    assert ys(curve.points) == [3, 24, 45]
    assert curve.said == "own objective 4 to 2"
    assert small_curve((100.0, 0.01)).said == "own objective 1e+02 to 0.01, log scale"
    assert ys(small_curve((1.0, 1.0)).points) == [24, 24]
    assert small_curve((1.0,)) is None
