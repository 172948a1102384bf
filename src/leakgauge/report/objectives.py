"""The attacks' own objectives along the way: did they fall, and had they stopped falling?

Every attack has another objective, so each is drawn relative to where it began.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from leakgauge.report.axis import DASHES, Chart, Charts, Frame, Line, Tick, log_axis, look
from leakgauge.report.cells import Cell, by_defense
from leakgauge.types import AuditReport

FRAME = Frame(width=340, height=230, left=52, right=330, top=24, bottom=190)
_LEAST = 1e-12  # of where it began: what lies below, or below zero, is drawn there
_PLACES = 25
SMALL_WIDTH, SMALL_HEIGHT = 240, 48


@dataclass(frozen=True)
class SmallCurve:
    """The objective of one trial, for the close look at a record."""

    points: str
    said: str
    width: int = SMALL_WIDTH
    height: int = SMALL_HEIGHT


def objectives(report: AuditReport, attacks: Sequence[str] = ()) -> Charts:
    """Per attack the median victim as a line. `attacks`: the order in which colours were given out before."""
    found: dict[str, list[tuple[Cell, np.ndarray]]] = {}
    for defense, group in by_defense(report).items():
        for cell in group:
            if (table := _relative(cell)) is not None:
                found.setdefault(defense, []).append((cell, table))
    drawn = [pair for pairs in found.values() for pair in pairs]
    if not drawn:
        return Charts((), FRAME)
    axis = log_axis([float(v) for _, table in drawn for v in np.percentile(table, [25, 75], axis=0).flatten()])
    names = dict.fromkeys([*attacks, *(cell.row.attack for cell, _ in drawn)])
    place = {name: i for i, name in enumerate(names)}

    def line(cell: Cell, table: np.ndarray) -> Line:
        levels = np.percentile(table, [25, 50, 75], axis=0)  # (3, places)
        low, median, high = ([f"{_x(i)},{FRAME.y(axis.share(v))}" for i, v in enumerate(row)] for row in levels)
        colour, index = look(place[cell.row.attack], cell.row.adaptive)
        said = f"to {_number(levels[1, -1])}, n = {len(table)}"  # where the median of n victims ended
        label, band = f"{cell.row.attack}, {cell.style}", " ".join([*high, *low[::-1]])
        return Line(label, colour, DASHES[index], " ".join(median), said, band)

    return Charts(
        tuple(Chart(defense, tuple(line(*pair) for pair in pairs)) for defense, pairs in found.items()),
        FRAME,
        x_ticks=tuple(Tick(FRAME.x(share), f"{100 * share:.0f} %") for share in (0.0, 0.5, 1.0)),
        y_ticks=tuple(Tick(FRAME.y(axis.share(t)), _number(t)) for t in axis.ticks),
    )


def small_curve(trace: Sequence[float]) -> SmallCurve | None:
    """One trial's objective between its own highest and lowest value; None where it has no curve."""
    if len(trace) < 2:
        return None
    lowest, highest = min(trace), max(trace)
    log = lowest > 0 and highest > 100 * lowest

    def level(value: float) -> float:
        if highest == lowest:
            return 0.5
        if log:
            return math.log(value / lowest) / math.log(highest / lowest)
        return (value - lowest) / (highest - lowest)

    step = (SMALL_WIDTH - 4) / (len(trace) - 1)
    points = (f"{2 + i * step:.0f},{3 + (1 - level(v)) * (SMALL_HEIGHT - 6):.0f}" for i, v in enumerate(trace))
    said = f"own objective {_number(trace[0])} to {_number(trace[-1])}{', log scale' if log else ''}"
    return SmallCurve(" ".join(points), said)


def _relative(cell: Cell) -> np.ndarray | None:
    """(T, places): each victim's objective over its first value; None if the attack has no way to draw."""
    if cell.row.error is not None:
        return None
    traces = [f.trace for f in cell.findings if f.error is None and len(f.trace) > 1 and f.trace[0] > 0]
    if not traces:
        return None
    along = np.linspace(0, 1, _PLACES)
    rows = [np.interp(along, np.linspace(0, 1, len(t)), np.asarray(t) / t[0]) for t in traces]
    return np.maximum(np.stack(rows), _LEAST)


def _x(place: float) -> float:
    return FRAME.x(place / (_PLACES - 1))


def _number(value: float) -> str:
    return f"{value:.2g}".replace("-", "−")
