"""What all charts share: the frame, axes that fit what is drawn on them, and the looks of attacks and floors.

Charts are coordinates for inline SVG, coloured by the page's own CSS, so that dark mode follows.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from leakgauge.verdict.roles import floor_names

COLOURS = 8  # as many as the style sheet has
DASHES = ("", "7 4", "2 3", "9 3 2 3")  # plain, adaptive; then again for a ninth attack and beyond
_FLOOR_DASHES = ("1 3", "5 3 1 3")
_MOST_TICKS = 7
_ROUND = [float(f"{digit}e{decade}") for decade in range(-30, 31) for digit in (1, 2, 5)]  # ..., 0.5, 1, 2, 5, 10, ...


@dataclass(frozen=True)
class Frame:
    """Size and edges of a chart in px; `inset`: room at both ends, where a mark stays whole."""

    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int
    inset: int = 0

    def x(self, share: float) -> float:
        """From the left edge, 0, to the right one, 1."""
        return round(self.left + self.inset + share * (self.right - self.left - 2 * self.inset), 1)

    def y(self, share: float) -> float:
        """From the bottom, 0, to the top, 1; SVG counts downwards."""
        return round(self.bottom - self.inset - share * (self.bottom - self.top - 2 * self.inset), 1)


@dataclass(frozen=True)
class Tick:
    at: float
    text: str


@dataclass(frozen=True)
class Line:
    label: str
    colour: str  # CSS class
    dash: str
    points: str
    said: str  # stands beside the label
    band: str = ""  # the outline of the middle half of the victims


@dataclass(frozen=True)
class Chart:
    """One configuration."""

    title: str
    items: tuple[Any, ...]  # lines or marks of attacks, in the order of the legend
    floors: tuple[Line, ...] = ()


@dataclass(frozen=True)
class Charts:
    """Charts of one kind side by side, with the same axes."""

    charts: tuple[Chart, ...]
    frame: Frame
    x_ticks: tuple[Tick, ...] = ()
    y_ticks: tuple[Tick, ...] = ()
    x_name: str = ""
    y_name: str = ""
    bar: float = 0.0  # where the criterion stands on the x axis
    bar_text: str = ""


def look(place: int, adaptive: bool) -> tuple[str, int]:
    """Colour of the attack with this place among all of them, and which of four dashes or shapes it has."""
    lap, index = divmod(place, COLOURS)
    return f"s{index}", 2 * min(lap, 1) + adaptive


def floor_dash(name: str) -> str:
    return _FLOOR_DASHES[floor_names().index(name) % len(_FLOOR_DASHES)]


@dataclass(frozen=True)
class Axis:
    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool = False

    def share(self, value: float) -> float:
        """How far along the axis a value stands, 0 to 1; what lies beyond an end stands at it."""
        value = min(self.high, max(self.low, value))
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def linear_axis(values: Sequence[float]) -> Axis:
    """From the round number below the least value to the one above the greatest."""
    least, most = min(values), max(values)
    whole = _ROUND[bisect_left(_ROUND, 1.0) :]
    step = next(s for s in whole if math.ceil(most / s) - math.floor(least / s) < _MOST_TICKS)
    first, last = math.floor(least / step), math.ceil(most / step)
    last = max(last, first + 1)  # a single round value still needs some room
    return Axis(first * step, last * step, tuple(i * step for i in range(first, last + 1)))


def log_axis(values: Sequence[float]) -> Axis:
    """Values above zero. Ticks at 1, 2 and 5 of each decade; over many decades at every one, or every other."""
    first, last = bisect_right(_ROUND, min(values)) - 1, bisect_left(_ROUND, max(values))
    if last - first < 2:
        first, last = first - 1, last + 1
    ticks = _ROUND[first : last + 1]
    decades = {tick: round(math.log10(tick)) for tick in ticks if f"{tick:e}".startswith("1.")}
    for stride in range(1, len(ticks)):
        if len(ticks) > _MOST_TICKS:
            ticks = [tick for tick, decade in decades.items() if decade % stride == 0]
    return Axis(_ROUND[first], _ROUND[last], tuple(ticks), log=True)
