"""Success rate over the threshold: how the verdict would move if the bar for "recovered" moved."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from leakgauge.metrics.criterion import Criterion, gain
from leakgauge.report.axis import DASHES, Chart, Charts, Frame, Line, Tick, floor_dash, look
from leakgauge.report.cells import Cell, baselines, by_defense, criterion
from leakgauge.report.numbers import heading, percent
from leakgauge.types import AuditReport
from leakgauge.verdict.credible import is_credible

FRAME = Frame(width=340, height=210, left=44, right=330, top=10, bottom=170)


@dataclass(frozen=True)
class Curve:
    label: str
    attack: str
    adaptive: bool
    shares: tuple[float, ...]  # one per threshold, 0 to 1
    at_criterion: float


@dataclass(frozen=True)
class Curves:
    criterion: Criterion
    thresholds: tuple[float, ...]
    panels: Mapping[str, tuple[Curve, ...]]  # configuration -> its attacks
    floors: tuple[Curve, ...]  # drawn in every panel

    @property
    def attacks(self) -> tuple[str, ...]:
        """Each once, in the order of their first curves: the order in which colours are given out."""
        return tuple(dict.fromkeys(c.attack for curves in self.panels.values() for c in curves))


def success_curves(report: AuditReport) -> Curves:
    rule = criterion(report)
    # Errors span decades: 1e-6 to 1.
    thresholds = [i / 100 for i in range(101)] if rule.higher_is_better else [10 ** (i / 10) for i in range(-60, 1)]
    size = max([len(f.records) for f in report.findings], default=0) or report.scenario.batch_size

    def curves(group: Sequence[Cell]) -> tuple[Curve, ...]:
        return tuple(_curve(cell, rule, thresholds, size) for cell in group if _measures(cell, rule))

    panels = {defense: drawn for defense, group in by_defense(report).items() if (drawn := curves(group))}
    return Curves(rule, tuple(thresholds), panels, curves(baselines(report)))


def _measures(cell: Cell, rule: Criterion) -> bool:
    """False for attacks that never ran and for those that claim no inputs (labels, properties)."""
    if cell.row.error is not None or not cell.findings:
        return False
    ran = [f for f in cell.findings if f.error is None]
    return not ran or any(r.get(rule.metric) is not None for f in ran for r in f.records)


def _curve(cell: Cell, rule: Criterion, thresholds: Sequence[float], size: int) -> Curve:
    # A failed trial has no records, yet its samples were attacked: they count as not recovered.
    ran = [f for f in cell.findings if f.error is None]
    counted = [r for f in ran for i, r in enumerate(f.records) if is_credible(f, i) is True]
    ranks = sorted(-gain(rule.metric, r.get(rule.metric)) for r in counted)
    attacked = sum(len(f.records) if f.error is None and f.records else size for f in cell.findings)

    def share(threshold: float) -> float:
        return bisect_right(ranks, -gain(rule.metric, threshold)) / attacked

    row = cell.row
    label = row.attack if cell.baseline else f"{row.attack}, {cell.style}"
    return Curve(label, row.attack, row.adaptive, tuple(map(share, thresholds)), share(rule.threshold))


def plot(curves: Curves) -> Charts:
    rule, (first, last) = curves.criterion, (curves.thresholds[0], curves.thresholds[-1])
    log = not rule.higher_is_better
    place = {attack: i for i, attack in enumerate(curves.attacks)}

    def x(threshold: float) -> float:
        threshold = min(last, max(first, threshold))
        if log:
            return FRAME.x(math.log(threshold / first) / math.log(last / first))
        return FRAME.x((threshold - first) / (last - first))

    def line(curve: Curve) -> Line:
        if curve.attack in place:
            colour, index = look(place[curve.attack], curve.adaptive)
            dash = DASHES[index]
        else:
            colour, dash = "floor", floor_dash(curve.attack)
        points = (f"{x(t)},{FRAME.y(s)}" for t, s in zip(curves.thresholds, curve.shares, strict=True))
        return Line(curve.label, colour, dash, " ".join(points), percent(curve.at_criterion))

    floors = tuple(map(line, curves.floors))
    ticks = [10.0**e for e in range(-6, 1, 2)] if log else [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    return Charts(
        tuple(Chart(defense, tuple(map(line, group)), floors) for defense, group in curves.panels.items()),
        FRAME,
        x_ticks=tuple(Tick(x(t), f"{t:g}") for t in ticks),
        y_ticks=tuple(Tick(FRAME.y(share), percent(share)) for share in (0.0, 0.5, 1.0)),
        x_name=f"{heading(rule.metric)[0]} threshold",
        bar=x(rule.threshold),
        bar_text=f"{heading(rule.metric)[0]} {rule.symbol} {rule.threshold:g}",
    )
