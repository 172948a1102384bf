"""Leak against accuracy: what a configuration gives away and what it costs, and which ones no other beats in both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from leakgauge.metrics.criterion import criterion_of
from leakgauge.report.axis import Frame, Tick, linear_axis
from leakgauge.report.cells import by_defense
from leakgauge.report.numbers import heading, milliseconds, number
from leakgauge.types import AuditReport, ConfigurationVerdict, Cost, Rate, Summary

FRAME = Frame(width=560, height=320, left=52, right=544, top=26, bottom=280, inset=12)


@dataclass(frozen=True)
class Choice:
    """One configuration: the strongest attack on it, and its price."""

    defense: str
    attack: str  # "idlg, adaptive"
    rate: Rate  # of recovered records
    score: str  # mean of the criterion's metric over records
    exposed: str  # of the most exposed record
    accuracy: float
    price: tuple[str, ...]  # accuracy, seconds of a round, slower by, bytes up, guarantee
    best: bool = False  # no other configuration leaks less and is as accurate


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
    frame: Frame = FRAME


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
    choices = tuple(replace(c, best=not any(_beats(other, c) for other in drawn)) for c in drawn)
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
    time, mean = cost.round_seconds, worst.metrics.get(_metric(report))
    slower = "" if usual is None or time.value is None else f"{100 * (time.value / usual - 1):+.0f} %"
    guarantee = "none" if promise is None else f"ε = {promise.epsilon:.3g} per {promise.unit}"
    accuracy = cost.accuracy or 0.0
    return Choice(
        defense=cost.defense,
        attack=f"{worst.attack}, {'adaptive' if worst.adaptive else 'plain'}",
        rate=worst.success_rate,
        score=number(name, mean.value if mean else None),
        exposed=number(name, worst.worst.get(name)),
        accuracy=accuracy,
        price=(f"{accuracy:.3f}", milliseconds(time), slower, f"{cost.bytes_up:,}", guarantee),
    )


def _beats(one: Choice, other: Choice) -> bool:
    """Recovers no more at no lower accuracy, and is not its equal in both: the Pareto order."""
    less, more = other.rate.value - one.rate.value, one.accuracy - other.accuracy
    return less >= 0 and more >= 0 and (less, more) != (0, 0)


def _drawn(plain: Tradeoff) -> Tradeoff:
    axis = linear_axis([100 * c.accuracy for c in plain.choices])  # in percent

    def mark(c: Choice) -> Mark:
        return Mark(c, FRAME.x(axis.share(100 * c.accuracy)), *map(FRAME.y, (c.rate.value, c.rate.low, c.rate.high)))

    marks = tuple(map(mark, plain.choices))
    return replace(
        plain,
        marks=marks,
        front=" ".join(f"{m.x},{m.y}" for m in sorted(marks, key=lambda m: m.x) if m.choice.best),
        x_ticks=tuple(Tick(FRAME.x(axis.share(t)), f"{t:g} %") for t in axis.ticks),
        y_ticks=tuple(Tick(FRAME.y(t / 4), f"{25 * t} %") for t in range(5)),
    )
