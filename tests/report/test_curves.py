"""Success curves count what the summary counts, failed trials included."""

import dataclasses

import pytest

from leakgauge.report.curves import success_curves
from leakgauge.report.plot import plot


@pytest.mark.parametrize("kind", ["image", "tabular"])
def test_share_at_the_criterion_is_the_success_rate(make, kind):
    report = make(kind, (3, 8, 8) if kind == "image" else (30,)).report
    curves = success_curves(report)
    rates = {(r.attack, r.defense, r.adaptive): r.success_rate.value for r in report.summary}
    assert len(curves.panels) == 2
    for panel in curves.panels:
        for curve in panel.curves:
            assert curve.at_criterion == rates[curve.attack, panel.defense, curve.adaptive]
    assert [c.attack for c in curves.floors] == ["random-guess", "mean-image"]


def test_failed_trials_count_as_not_recovered(made):
    findings = tuple(
        dataclasses.replace(f, records=(), error="lost") if f.trial > 0 else f for f in made.report.findings
    )
    curves = success_curves(dataclasses.replace(made.report, findings=findings))
    best = next(c for c in curves.panels[0].curves if c.attack == "inverting-gradients")
    assert best.at_criterion == pytest.approx(1 / 3)


def test_shares_fall_as_the_bar_rises(made):
    for panel in success_curves(made.report).panels:
        for curve in panel.curves:
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
    assert [c for panel in curves.panels for c in panel.curves if c.attack == "inverting-gradients"] == []
    assert [c for c in (curves.panels[0].curves if curves.panels else ()) if c.attack == "dlg"] == []


def test_plot_stays_inside_its_frame(made):
    drawn = plot(success_curves(made.report))
    for chart in drawn.charts:
        for line in (*chart.lines, *chart.floors):
            for point in line.points.split():
                x, y = map(float, point.split(","))
                assert drawn.left <= x <= drawn.right
                assert drawn.top <= y <= drawn.bottom
    assert len({line.colour for line in drawn.charts[0].lines}) == 2
