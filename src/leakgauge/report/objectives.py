"""The attacks' own objectives along the way: did they fall, and had they stopped falling?

Every attack has another objective, so each is drawn relative to where it began.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from leakgauge.report.axis import log_axis
from leakgauge.report.cells import Cell, by_defense
from leakgauge.report.plot import COLOURS, DASHES, Tick
from leakgauge.types import AuditReport

WIDTH, HEIGHT = 340, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 10, 24, 40
_LEAST = 1e-12  # of where it began: what lies below, or below zero, is drawn there
_PLACES = 25
SMALL_WIDTH, SMALL_HEIGHT = 240, 48


@dataclass(frozen=True)
class Fall:
    """One attack: the median victim, and the middle half of them as a band."""

    label: str
    colour: str  # CSS class
    dash: str
    points: str
    band: str
    said: str  # where the median of n victims ended: "to 0.012, n = 6"


@dataclass(frozen=True)
class ObjectiveChart:
    defense: str
    falls: tuple[Fall, ...]


@dataclass(frozen=True)
class Objectives:
    charts: tuple[ObjectiveChart, ...]
    x_ticks: tuple[Tick, ...] = ()
    y_ticks: tuple[Tick, ...] = ()
    width: int = WIDTH
    height: int = HEIGHT
    left: int = _LEFT
    right: int = WIDTH - _RIGHT
    top: int = _TOP
    bottom: int = HEIGHT - _BOTTOM


@dataclass(frozen=True)
class SmallCurve:
    """The objective of one trial, for the close look at a record."""

    points: str
    said: str
    width: int = SMALL_WIDTH
    height: int = SMALL_HEIGHT


def objectives(report: AuditReport, attacks: Sequence[str] = ()) -> Objectives:
    """`attacks`: the order in which colours were given out elsewhere on the page."""
    groups = by_defense(report)
    found = {
        defense: [(cell, table) for cell in group if (table := _relative(cell)) is not None]
        for defense, group in groups.items()
    }
    tables = [table for group in found.values() for _, table in group]
    if not tables:
        return Objectives(())
    axis = log_axis([float(v) for table in tables for v in np.percentile(table, [25, 75], axis=0).flatten()])
    names = dict.fromkeys([*attacks, *(cell.row.attack for group in found.values() for cell, _ in group)])
    place = {name: i for i, name in enumerate(names)}

    def y(value: float) -> float:
        return round(HEIGHT - _BOTTOM - axis.share(value) * (HEIGHT - _TOP - _BOTTOM), 1)

    def fall(cell: Cell, table: np.ndarray) -> Fall:
        low, median, high = (np.percentile(table, p, axis=0) for p in (25, 50, 75))
        up = [f"{_x(i)},{y(v)}" for i, v in enumerate(high)]
        down = [f"{_x(i)},{y(v)}" for i, v in enumerate(low)]
        lap, index = divmod(place[cell.row.attack], COLOURS)
        return Fall(
            label=f"{cell.row.attack}, {cell.style}",
            colour=f"s{index}",
            dash=DASHES[2 * min(lap, 1) + cell.row.adaptive],
            points=" ".join(f"{_x(i)},{y(v)}" for i, v in enumerate(median)),
            band=" ".join([*up, *down[::-1]]),
            said=f"to {_number(median[-1])}, n = {len(table)}",
        )

    return Objectives(
        tuple(ObjectiveChart(d, tuple(fall(*pair) for pair in group)) for d, group in found.items() if group),
        x_ticks=tuple(Tick(_x(share * (_PLACES - 1)), f"{100 * share:.0f} %") for share in (0, 0.5, 1)),
        y_ticks=tuple(Tick(y(t), _number(t)) for t in axis.ticks),
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
    return SmallCurve(
        " ".join(points), f"own objective {_number(trace[0])} to {_number(trace[-1])}{', log scale' if log else ''}"
    )


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
    return round(_LEFT + place / (_PLACES - 1) * (WIDTH - _LEFT - _RIGHT), 1)


def _number(value: float) -> str:
    return f"{value:.2g}".replace("-", "−")
