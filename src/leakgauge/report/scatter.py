"""Quality against seconds as coordinates for inline SVG, in the colours that the success curves have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from leakgauge.report.axis import Axis, linear_axis, log_axis
from leakgauge.report.numbers import base, duration, heading, number
from leakgauge.report.plot import COLOURS, Tick, floor_dash
from leakgauge.report.quality import Point, Quality

WIDTH, HEIGHT = 340, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 12, 26, 40
_INSET = 9  # a point at the end of an axis stays whole
_LEAST_ERROR = 1e-10  # the error at which PSNR is capped; a copy without any error has no place on a log axis
_SHAPES = (  # around (0, 0): plain, adaptive; then again for a ninth attack and beyond
    "M-3.5,0a3.5,3.5 0 1,0 7,0a3.5,3.5 0 1,0 -7,0z",
    "M0,-5.5L5.5,0L0,5.5L-5.5,0z",
    "M-3.2,-3.2h6.4v6.4h-6.4z",
    "M0,-5.5L5.5,4L-5.5,4z",
)


@dataclass(frozen=True)
class Mark:
    label: str
    colour: str  # CSS class
    shape: str  # path around (0, 0)
    hollow: bool  # adaptive
    x: float
    y: float
    low: float  # where the interval ends, in y
    high: float
    said: str  # "19.9 dB in 1.3 s", or "1.20e−04 in 1.3 s"


@dataclass(frozen=True)
class FloorLine:
    label: str
    dash: str
    y: float
    said: str


@dataclass(frozen=True)
class ScatterChart:
    title: str
    marks: tuple[Mark, ...]  # in the order of the legend: quickest first
    floors: tuple[FloorLine, ...]

    @property
    def painted(self) -> list[Mark]:
        """The larger, hollow ones first, so that neither hides the other where both stand at one place."""
        return sorted(self.marks, key=lambda mark: not mark.hollow)


@dataclass(frozen=True)
class Scatter:
    charts: tuple[ScatterChart, ...]
    x_ticks: tuple[Tick, ...] = ()
    y_ticks: tuple[Tick, ...] = ()
    x_name: str = "seconds per victim"
    y_name: str = ""
    width: int = WIDTH
    height: int = HEIGHT
    left: int = _LEFT
    right: int = WIDTH - _RIGHT
    top: int = _TOP
    bottom: int = HEIGHT - _BOTTOM


def scatter(quality: Quality, attacks: Sequence[str] = ()) -> Scatter:
    """All charts share their axes. `attacks`: the order in which colours were given out elsewhere on the page."""
    points = [p for group in quality.groups for p in group.points]
    if not points:
        return Scatter(())
    error = base(quality.metric) == "mse"
    x_axis = log_axis([p.seconds for p in points])
    y_axis = _score_axis([v for p in points for v in (p.low, p.score, p.high)], quality, error)
    place = {attack: i for i, attack in enumerate(dict.fromkeys([*attacks, *(p.attack for p in points)]))}

    def x(seconds: float) -> float:
        return round(_LEFT + _INSET + x_axis.share(seconds) * (WIDTH - _LEFT - _RIGHT - 2 * _INSET), 1)

    def y(score: float) -> float:
        up = 1 - y_axis.share(score) if error else y_axis.share(score)  # better is always higher up
        return round(HEIGHT - _BOTTOM - _INSET - up * (HEIGHT - _TOP - _BOTTOM - 2 * _INSET), 1)

    floors = tuple(FloorLine(name, floor_dash(name), y(score), said(quality, score)) for name, score in quality.floors)
    charts = tuple(
        ScatterChart(group.defense, tuple(_mark(p, place[p.attack], quality, x, y) for p in group.points), floors)
        for group in quality.groups
    )
    name, reduction = heading(quality.metric)
    return Scatter(
        charts,
        x_ticks=tuple(Tick(x(t), f"{t:,g}") for t in x_axis.ticks),
        y_ticks=tuple(Tick(y(t), f"{t:g}".replace("-", "−")) for t in y_axis.ticks),
        y_name=f"{name}, {reduction}" + (" (less is higher up)" if error else ""),
    )


def said(quality: Quality, score: float, seconds: float | None = None) -> str:
    """A score as it is read beside its name, "19.9 dB in 1.3 s"; for a floor without the time."""
    text = number(quality.metric, score) + (" dB" if base(quality.metric) == "psnr" else "")
    return text if seconds is None else f"{text} in {duration(seconds)}"


def _score_axis(values: Sequence[float], quality: Quality, error: bool) -> Axis:
    shown = [*values, *(score for _, score in quality.floors)]
    return log_axis([max(v, _LEAST_ERROR) for v in shown]) if error else linear_axis(shown)


def _mark(point: Point, place: int, quality: Quality, x: Callable[[float], float], y: Callable[[float], float]) -> Mark:
    lap, index = divmod(place, COLOURS)
    return Mark(
        label=point.label,
        colour=f"s{index}",
        shape=_SHAPES[2 * min(lap, 1) + point.adaptive],
        hollow=point.adaptive,
        x=x(point.seconds),
        y=y(point.score),
        low=y(point.low),
        high=y(point.high),
        said=said(quality, point.score, point.seconds),
    )
