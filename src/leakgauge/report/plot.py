"""Success curves as coordinates for inline SVG: coloured by the page's own CSS, so dark mode follows."""

from __future__ import annotations

import math
from dataclasses import dataclass

from leakgauge.report.curves import Curve, Curves
from leakgauge.report.numbers import percent
from leakgauge.verdict.roles import floor_names

WIDTH, HEIGHT = 340, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 10, 10, 40
COLOURS = 8  # as many as the style sheet has
DASHES = ("", "7 4", "2 3", "9 3 2 3")  # plain, adaptive; then again for a ninth attack and beyond
_FLOOR_DASHES = ("1 3", "5 3 1 3")


@dataclass(frozen=True)
class Line:
    points: str
    label: str
    colour: str  # CSS class
    dash: str
    rate: str  # share recovered at the criterion


@dataclass(frozen=True)
class Tick:
    at: float
    text: str


@dataclass(frozen=True)
class Chart:
    title: str
    lines: tuple[Line, ...]
    floors: tuple[Line, ...]


@dataclass(frozen=True)
class Plot:
    charts: tuple[Chart, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    x_name: str
    bar: float  # where the criterion stands on the x axis
    bar_text: str
    width: int = WIDTH
    height: int = HEIGHT
    left: int = _LEFT
    right: int = WIDTH - _RIGHT
    top: int = _TOP
    bottom: int = HEIGHT - _BOTTOM


def plot(curves: Curves) -> Plot:
    rule = curves.criterion
    log = not rule.higher_is_better
    colour = {attack: i for i, attack in enumerate(curves.attacks)}

    def x(threshold: float) -> float:
        first, last = curves.thresholds[0], curves.thresholds[-1]
        if log:
            first, last, threshold = math.log10(first), math.log10(last), math.log10(max(threshold, first))
        share = min(1.0, max(0.0, (threshold - first) / (last - first)))
        return round(_LEFT + share * (WIDTH - _LEFT - _RIGHT), 1)

    def line(curve: Curve, css: str, dash: str) -> Line:
        points = " ".join(f"{x(t)},{_y(s)}" for t, s in zip(curves.thresholds, curve.shares, strict=True))
        return Line(points, curve.label, css, dash, percent(curve.at_criterion))

    def attack_line(curve: Curve) -> Line:
        lap, index = divmod(colour[curve.attack], COLOURS)
        return line(curve, f"s{index}", DASHES[2 * min(lap, 1) + curve.adaptive])

    floors = tuple(line(c, "floor", floor_dash(c.attack)) for c in curves.floors)
    ticks = [10.0**e for e in range(-6, 1, 2)] if log else [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    return Plot(
        charts=tuple(Chart(p.defense, tuple(map(attack_line, p.curves)), floors) for p in curves.panels),
        x_ticks=tuple(Tick(x(t), f"{t:g}") for t in ticks),
        y_ticks=tuple(Tick(_y(share), percent(share)) for share in (0.0, 0.5, 1.0)),
        x_name=f"{rule.metric.upper()} threshold",
        bar=x(rule.threshold),
        bar_text=f"{rule.metric.upper()} {rule.symbol} {rule.threshold:g}",
    )


def floor_dash(name: str) -> str:
    return _FLOOR_DASHES[floor_names().index(name) % len(_FLOOR_DASHES)]


def _y(share: float) -> float:
    return round(HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM), 1)
