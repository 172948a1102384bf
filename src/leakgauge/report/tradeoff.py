"""Leak against accuracy: what a configuration gives away and what it costs, and which ones no other beats in both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from leakgauge.metrics.criterion import criterion_of
from leakgauge.report.axis import linear_axis
from leakgauge.report.cells import by_defense
from leakgauge.report.numbers import heading, number
from leakgauge.report.plot import Tick
from leakgauge.types import AuditReport, ConfigurationVerdict, Cost, Summary

WIDTH, HEIGHT = 560, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 16, 26, 40
_INSET = 12


@dataclass(frozen=True)
class Choice:
    """One configuration: the strongest attack on it, and its price."""

    defense: str
    attack: str  # "idlg, adaptive"
    recovered: float  # share of records
    low: float
    high: float
    recovered_text: str  # "3 of 6"
    score: str  # mean of the criterion's metric over records
    exposed: str  # of the most exposed record
    accuracy: float
    seconds: str  # "17 ms [13, 25]"
    slower: str  # "+3 %"
    bytes_up: str
    guarantee: str
    best: bool  # no other configuration leaks less and is as accurate


@dataclass(frozen=True)
class Mark:
    choice: Choice
    x: float
    y: float
    low: float
    high: float


@dataclass(frozen=True)
class Tradeoff:
    """Rows of the table, and the same as coordinates of one plot."""

    choices: tuple[Choice, ...]
    left_out: tuple[tuple[str, str], ...]  # defense, why
    setting: str
    score_name: str
    marks: tuple[Mark, ...] = ()
    front: str = ""  # polyline of the best
    x_ticks: tuple[Tick, ...] = ()
    y_ticks: tuple[Tick, ...] = ()
    width: int = WIDTH
    height: int = HEIGHT
    left: int = _LEFT
    right: int = WIDTH - _RIGHT
    top: int = _TOP
    bottom: int = HEIGHT - _BOTTOM


def tradeoff(report: AuditReport) -> Tradeoff | None:
    """None where no training was asked for."""
    if report.costs is None:
        return None
    rows = {defense: [c.row for c in group] for defense, group in by_defense(report).items()}
    usual = next((c.round_seconds.value for c in report.costs.rows if c.round_seconds.value), None)
    verdicts = {c.defense: c for c in report.verdict.configurations}
    drawn, left_out = [], []
    for cost in report.costs.rows:
        attacked = [r for r in rows.get(cost.defense, []) if r.success_rate.records and not r.error]
        if cost.accuracy is None:
            left_out.append((cost.defense, cost.error or "not trained"))
        elif not attacked:
            left_out.append((cost.defense, "no attack ran on it"))
        else:
            drawn.append(_choice(cost, attacked, report, usual, verdicts.get(cost.defense)))
    best = _best(drawn)
    choices = tuple(_marked(c, c in best) for c in drawn)
    name, reduction = heading(_metric(report))
    plain = Tradeoff(choices, tuple(left_out), report.costs.setting, f"{name}, {reduction}")
    return _drawn(plain) if choices else plain


def _metric(report: AuditReport) -> str:
    return f"{criterion_of(report.data).metric}_mean_per_image"


def _choice(
    cost: Cost, rows: Sequence[Summary], report: AuditReport, usual: float | None, verdict: ConfigurationVerdict | None
) -> Choice:
    """The attack that the verdict calls strongest speaks for all."""
    name, promise = criterion_of(report.data).metric, verdict.guarantee if verdict else None
    named = [r for r in rows if verdict and (r.attack, r.adaptive) == (verdict.attack, verdict.adaptive)]
    worst = max(named or rows, key=lambda r: r.success_rate.value)
    rate, time = worst.success_rate, cost.round_seconds
    mean, exposed = worst.metrics.get(_metric(report)), worst.worst.get(name)
    slower = "" if usual is None or time.value is None else f"{100 * (time.value / usual - 1):+.0f} %"
    return Choice(
        defense=cost.defense,
        attack=f"{worst.attack}, {'adaptive' if worst.adaptive else 'plain'}",
        recovered=rate.value,
        low=rate.low,
        high=rate.high,
        recovered_text=f"{rate.recovered} of {rate.records}",
        score="–" if mean is None or mean.value is None else number(_metric(report), mean.value),
        exposed="–" if exposed is None else number(name, exposed),
        accuracy=cost.accuracy or 0.0,
        seconds=f"{1000 * (time.value or 0):.0f} ms [{1000 * (time.low or 0):.0f}, {1000 * (time.high or 0):.0f}]",
        slower=slower,
        bytes_up=f"{cost.bytes_up:,}",
        guarantee="none" if promise is None else f"ε = {promise.epsilon:.3g} per {promise.unit}",
        best=False,
    )


def _best(choices: Sequence[Choice]) -> list[Choice]:
    """The Pareto front: nothing else recovers less at no lower accuracy, or as little at a higher one."""
    return [
        c
        for c in choices
        if not any(
            o.recovered <= c.recovered
            and o.accuracy >= c.accuracy
            and (o.recovered, o.accuracy) != (c.recovered, c.accuracy)
            for o in choices
        )
    ]


def _marked(choice: Choice, best: bool) -> Choice:
    return replace(choice, best=best)


def _drawn(plain: Tradeoff) -> Tradeoff:
    x_axis = linear_axis([100 * c.accuracy for c in plain.choices])  # in percent
    wide, high = WIDTH - _LEFT - _RIGHT - 2 * _INSET, HEIGHT - _TOP - _BOTTOM - 2 * _INSET

    def x(accuracy: float) -> float:
        return round(_LEFT + _INSET + x_axis.share(100 * accuracy) * wide, 1)

    def y(share: float) -> float:
        return round(HEIGHT - _BOTTOM - _INSET - share * high, 1)

    marks = tuple(Mark(c, x(c.accuracy), y(c.recovered), y(c.low), y(c.high)) for c in plain.choices)
    front = sorted((m for m in marks if m.choice.best), key=lambda m: m.x)
    return replace(
        plain,
        marks=marks,
        front=" ".join(f"{m.x},{m.y}" for m in front),
        x_ticks=tuple(Tick(x(t / 100), f"{t:g} %") for t in x_axis.ticks),
        y_ticks=tuple(Tick(y(t / 4), f"{25 * t} %") for t in range(5)),
    )
