"""Quality against seconds: what an attack reached and how long it took, as numbers and as coordinates for SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from leakgauge.report.axis import Chart, Charts, Frame, Line, Tick, floor_dash, linear_axis, log_axis, look
from leakgauge.report.cells import Cell, by_defense
from leakgauge.report.numbers import base, duration, heading, number
from leakgauge.types import AuditReport, Interval
from leakgauge.verdict.roles import floor_names

FRAME = Frame(width=340, height=260, left=48, right=328, top=26, bottom=220, inset=9)
_METRIC = {"image": "psnr_mean_per_image", "tabular": "mse_mean_per_image"}
_LEAST_ERROR = 1e-10  # the error at which PSNR is capped; a copy without any error has no place on a log axis
_SHAPES = (  # around (0, 0): plain, adaptive; then again for a ninth attack and beyond
    "M-3.5,0a3.5,3.5 0 1,0 7,0a3.5,3.5 0 1,0 -7,0z",
    "M0,-5.5L5.5,0L0,5.5L-5.5,0z",
    "M-3.2,-3.2h6.4v6.4h-6.4z",
    "M0,-5.5L5.5,4L-5.5,4z",
)


@dataclass(frozen=True)
class Point:
    label: str
    attack: str
    adaptive: bool
    seconds: float  # per victim that ran; above zero
    score: float  # mean over the victims
    low: float  # its 95 % interval; the score itself where there is none
    high: float


@dataclass(frozen=True)
class Quality:
    metric: str  # with its reduction: psnr_mean_per_image
    groups: Mapping[str, tuple[Point, ...]]  # configuration -> its attacks, quickest first
    floors: tuple[tuple[str, float], ...]  # baseline and its mean score

    @property
    def name(self) -> str:
        """ "PSNR, mean per image"."""
        name, reduction = heading(self.metric)
        return f"{name.split(',')[0]}, {reduction}"

    def said(self, score: float, seconds: float | None = None) -> str:
        """A score as it is read beside its name, "19.9 dB in 1.3 s"; for a floor without the time."""
        text = number(self.metric, score) + (" dB" if base(self.metric) == "psnr" else "")
        return text if seconds is None else f"{text} in {duration(seconds)}"


def quality(report: AuditReport) -> Quality:
    """Attacks that could not run, took no time or claim no inputs have no place in it."""
    metric, cells = _METRIC.get(report.data.kind, _METRIC["tabular"]), by_defense(report)
    groups = {}
    for defense, group in cells.items():
        if points := [point for cell in group if (point := _point(cell, metric)) is not None]:
            groups[defense] = tuple(sorted(points, key=lambda p: p.seconds))
    rows = [cell.row for group in cells.values() for cell in group]
    found = {name: row.floor[name].get(metric) for name in floor_names() for row in rows if name in row.floor}
    return Quality(
        metric, groups, tuple((n, i.value) for n, i in found.items() if i is not None and i.value is not None)
    )


def _point(cell: Cell, metric: str) -> Point | None:
    row, score = cell.row, cell.row.metrics.get(metric, Interval(None, None, None))
    # Over those that ran: one that failed at once would make the others look quick.
    ran = [f.seconds for f in cell.findings if f.error is None]
    if row.error is not None or score.value is None or not sum(ran) > 0:
        return None
    low = score.value if score.low is None else score.low
    high = score.value if score.high is None else score.high
    return Point(f"{row.attack}, {cell.style}", row.attack, row.adaptive, sum(ran) / len(ran), score.value, low, high)


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


def painted(marks: Sequence[Mark]) -> list[Mark]:
    """The larger, hollow ones first, so that neither hides the other where both stand at one place."""
    return sorted(marks, key=lambda mark: not mark.hollow)


def scatter(quality: Quality, attacks: Sequence[str] = ()) -> Charts:
    """All charts share their axes. `attacks`: the order in which colours were given out elsewhere on the page."""
    points = [p for group in quality.groups.values() for p in group]
    if not points:
        return Charts((), FRAME)
    error = base(quality.metric) == "mse"
    x_axis = log_axis([p.seconds for p in points])
    scores = [v for p in points for v in (p.low, p.score, p.high)] + [score for _, score in quality.floors]
    y_axis = log_axis([max(v, _LEAST_ERROR) for v in scores]) if error else linear_axis(scores)
    place = {attack: i for i, attack in enumerate(dict.fromkeys([*attacks, *(p.attack for p in points)]))}

    def x(seconds: float) -> float:
        return FRAME.x(x_axis.share(seconds))

    def y(score: float) -> float:
        return FRAME.y(1 - y_axis.share(score) if error else y_axis.share(score))  # better is always higher up

    def mark(p: Point) -> Mark:
        colour, shape = look(place[p.attack], p.adaptive)
        where = x(p.seconds), y(p.score), y(p.low), y(p.high)
        return Mark(p.label, colour, _SHAPES[shape], p.adaptive, *where, quality.said(p.score, p.seconds))

    def floor(name: str, score: float) -> Line:
        points = f"{FRAME.left},{y(score)} {FRAME.right},{y(score)}"
        return Line(name, "floor", floor_dash(name), points, quality.said(score))

    floors = tuple(floor(*pair) for pair in quality.floors)
    name, reduction = heading(quality.metric)
    return Charts(
        tuple(Chart(defense, tuple(map(mark, group)), floors) for defense, group in quality.groups.items()),
        FRAME,
        x_ticks=tuple(Tick(x(t), f"{t:,g}") for t in x_axis.ticks),
        y_ticks=tuple(Tick(y(t), f"{t:g}".replace("-", "−")) for t in y_axis.ticks),
        x_name="seconds per victim",
        y_name=f"{name}, {reduction}" + (" (less is higher up)" if error else ""),
    )
