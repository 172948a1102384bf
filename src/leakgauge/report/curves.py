"""Success rate over the threshold: how the verdict would move if the bar for "recovered" moved."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from leakgauge.metrics.criterion import Criterion, gain
from leakgauge.report.cells import Cell, baselines, by_defense, criterion
from leakgauge.types import AuditReport
from leakgauge.verdict.credible import is_credible


@dataclass(frozen=True)
class Curve:
    label: str
    attack: str
    adaptive: bool
    shares: tuple[float, ...]  # one per threshold, 0 to 1
    at_criterion: float


@dataclass(frozen=True)
class Panel:
    """One configuration; the baselines' curves are drawn in every panel."""

    defense: str
    curves: tuple[Curve, ...]


@dataclass(frozen=True)
class Curves:
    criterion: Criterion
    thresholds: tuple[float, ...]
    panels: tuple[Panel, ...]
    floors: tuple[Curve, ...]

    @property
    def attacks(self) -> tuple[str, ...]:
        """Each once, in the order of their first curves: the order in which colours are given out."""
        return tuple(dict.fromkeys(c.attack for panel in self.panels for c in panel.curves))


def success_curves(report: AuditReport) -> Curves:
    rule = criterion(report)
    thresholds = _thresholds(rule)
    size = max([len(f.records) for f in report.findings], default=0) or report.scenario.batch_size

    def curves(group: list[Cell]) -> tuple[Curve, ...]:
        return tuple(_curve(cell, rule, thresholds, size) for cell in group if _measures(cell, rule))

    panels = tuple(Panel(defense, curves(group)) for defense, group in by_defense(report).items())
    shown = tuple(panel for panel in panels if panel.curves)
    return Curves(rule, thresholds, shown, curves(baselines(report)))


def _thresholds(rule: Criterion) -> tuple[float, ...]:
    if rule.higher_is_better:
        return tuple(i / 100 for i in range(101))
    return tuple(10 ** (i / 10) for i in range(-60, 1))  # errors span decades: 1e-6 to 1


def _measures(cell: Cell, rule: Criterion) -> bool:
    """False for attacks that never ran and for those that claim no inputs (labels, properties)."""
    if cell.row.error is not None or not cell.findings:
        return False
    ran = [f for f in cell.findings if f.error is None]
    return not ran or any(r.get(rule.metric) is not None for f in ran for r in f.records)


def _curve(cell: Cell, rule: Criterion, thresholds: tuple[float, ...], size: int) -> Curve:
    # A failed trial has no records, yet its samples were attacked: they count as not recovered.
    ranks = sorted(
        -gain(rule.metric, r.get(rule.metric))
        for f in cell.findings
        if f.error is None
        for i, r in enumerate(f.records)
        if is_credible(f, i) is True
    )
    attacked = sum(len(f.records) if f.error is None and f.records else size for f in cell.findings)

    def share(threshold: float) -> float:
        return bisect_right(ranks, -gain(rule.metric, threshold)) / attacked

    row = cell.row
    label = row.attack if cell.baseline else f"{row.attack}, {cell.style}"
    shares = tuple(share(t) for t in thresholds)
    return Curve(label, row.attack, row.adaptive, shares, share(rule.threshold))
