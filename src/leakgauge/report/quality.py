"""What an attack reached and how long it took for it: one point per attack and configuration."""

from __future__ import annotations

from dataclasses import dataclass

from leakgauge.report.cells import Cell, by_defense
from leakgauge.types import AuditReport, Interval
from leakgauge.verdict.roles import floor_names

_METRIC = {"image": "psnr_mean_per_image", "tabular": "mse_mean_per_image"}


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
class Group:
    defense: str
    points: tuple[Point, ...]  # quickest first


@dataclass(frozen=True)
class Quality:
    metric: str  # with its reduction: psnr_mean_per_image
    groups: tuple[Group, ...]
    floors: tuple[tuple[str, float], ...]  # baseline and its mean score


def quality(report: AuditReport) -> Quality:
    """Attacks that could not run, took no time or claim no inputs have no place in it."""
    metric = _METRIC.get(report.data.kind, _METRIC["tabular"])
    groups = by_defense(report)
    drawn = [
        Group(defense, tuple(sorted(filter(None, (_point(cell, metric) for cell in cells)), key=lambda p: p.seconds)))
        for defense, cells in groups.items()
    ]
    rows = [cell.row for cells in groups.values() for cell in cells]
    found = {name: row.floor[name].get(metric) for name in floor_names() for row in rows if name in row.floor}
    floors = tuple((name, i.value) for name, i in found.items() if i is not None and i.value is not None)
    return Quality(metric, tuple(group for group in drawn if group.points), floors)


def _point(cell: Cell, metric: str) -> Point | None:
    row = cell.row
    score = row.metrics.get(metric, Interval(None, None, None))
    seconds = _seconds_per_victim(cell)
    if row.error is not None or score.value is None or seconds <= 0:
        return None
    low = score.value if score.low is None else score.low
    high = score.value if score.high is None else score.high
    return Point(f"{row.attack}, {cell.style}", row.attack, row.adaptive, seconds, score.value, low, high)


def _seconds_per_victim(cell: Cell) -> float:
    """Over those that ran: one that failed at once would make the others look quick."""
    ran = [f.seconds for f in cell.findings if f.error is None]
    return sum(ran) / len(ran) if ran else 0.0
