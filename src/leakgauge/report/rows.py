"""The attack x defence table as words: the same columns and digits on the page and in Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from leakgauge.report.cells import BASELINES, LABELS, Cell, baselines, by_defense
from leakgauge.report.criterion import criterion
from leakgauge.report.numbers import NOTHING, base, bounds, count, duration, heading, number, percent, rate_bounds
from leakgauge.types import UNDEFENDED, AuditReport, Interval, Summary

_ORDER = {"image": ("psnr", "ssim", "label_accuracy"), "tabular": ("mse", "label_accuracy")}


@dataclass(frozen=True)
class Column:
    heading: str
    note: str = ""  # how many became one
    strong: bool = False


Value = tuple[str, tuple[str, ...]]  # what is read first, and the lines of small print below it


@dataclass(frozen=True)
class Row:
    attack: str
    style: str
    defense: str
    baseline: bool
    error: str | None
    values: tuple[Value, ...]  # one per column
    keys: tuple[float | None, ...]  # what each column sorts by; None comes last


def columns(report: AuditReport) -> list[Column]:
    measured = [Column(*heading(m)) for m in _metrics(report)]
    floors = [Column(f"Floor: {name}") for name in BASELINES]
    return [
        Column("Success rate", ", ".join(_criteria(report)), strong=True),
        Column("Trials"),
        Column("Failed"),
        *measured,
        Column("Most exposed record"),
        Column("Control", "place of the true sample"),
        *floors,
        Column("Flags"),
        Column("Spent", "counts per victim"),
    ]


def table_rows(report: AuditReport) -> list[Row]:
    """Grouped by defence; the baselines' own rows come last."""
    ordered = [cell for group in by_defense(report).values() for cell in group] + baselines(report)
    return [_row(report, cell) for cell in ordered]


def most_exposed(report: AuditReport) -> str:
    """The record under test that was recovered best, over all attacks; empty if none was scored.

    The undefended update is under test only if nothing else is.
    """
    rule = criterion(report)
    groups = by_defense(report)
    tested = [group for defense, group in groups.items() if defense != UNDEFENDED] or list(groups.values())
    scored = [c for group in tested for c in group if c.row.error is None and not c.control]
    scored = [c for c in scored if c.row.worst.get(rule.metric) is not None]
    if not scored:
        return ""
    cell = min(scored, key=lambda c: rule.rank(c.row.worst))
    score, small = _worst(report, cell)
    who = f"by {cell.row.attack}, {cell.style}, against defence {cell.row.defense}"
    return f"Most exposed record: {', '.join([score, *small])}, {who}."


def guarantee_text(guarantee: Mapping[str, Any] | None) -> str:
    if guarantee is None:
        return ""
    epsilon, delta, unit = (guarantee[key] for key in ("epsilon", "delta", "unit"))
    return f"Accounted guarantee: ε = {epsilon:g}, δ = {delta:g} per {unit}."


def _metrics(report: AuditReport) -> list[str]:
    """Those of this kind of data first, then any that we do not know; MSE of images is in the JSON."""
    present = dict.fromkeys(m for row in report.summary for m in row.metrics)
    order = _ORDER[report.data.kind]
    known = [m for name in order for m in present if base(m) == name]
    more = [m for m in present if base(m) not in {*order, "mse", "psnr", "ssim", "detail"}]
    return known + more


def _row(report: AuditReport, cell: Cell) -> Row:
    row = cell.row
    nothing = Interval(None, None, None)
    measured = [(m, row.metrics.get(m, nothing)) for m in _metrics(report)]
    values: list[Value] = [
        _rate(report, cell),
        (str(row.trials), ()),
        (str(row.failed), ()),
        *((number(m, i.value), _lines(bounds(m, i))) for m, i in measured),
        _worst(report, cell),
        _control(cell),
        *(_floor(report, cell, name) for name in BASELINES),
        (", ".join(row.flags) or NOTHING, ()),
        _spent(row),
    ]
    return Row(row.attack, cell.style, row.defense, cell.baseline, row.error, tuple(values), _keys(report, cell))


def _keys(report: AuditReport, cell: Cell) -> tuple[float | None, ...]:
    """The numbers behind the words, in the order of the columns."""
    row, score = cell.row, _compared(report)[0]
    control = row.control
    metrics = [row.metrics[m].value if m in row.metrics else None for m in _metrics(report)]
    floors = [row.floor.get(name, {}).get(f"{score}_mean_per_image") for name in BASELINES]
    return (
        row.success_rate.value if cell.claims_records else None,
        row.trials,
        row.failed,
        *metrics,
        row.worst.get(score),
        None if control is None or not control.records else control.first / control.records,
        *(None if cell.baseline or floor is None else floor.value for floor in floors),
        len(row.flags),
        row.seconds,
    )


def _rate(report: AuditReport, cell: Cell) -> Value:
    rate = cell.row.success_rate
    if not cell.claims_records:
        return NOTHING, ("claims no records",)
    return percent(rate.value), _lines(
        rate_bounds(rate),
        f"{rate.recovered} of {rate.records}",
        rate.criterion if len(_criteria(report)) > 1 else "",
    )


def _criteria(report: AuditReport) -> list[str]:
    return list(dict.fromkeys(row.success_rate.criterion for row in report.summary))


def _worst(report: AuditReport, cell: Cell) -> Value:
    worst = cell.row.worst
    if not worst or worst.get("trial") is None:
        return NOTHING, ()
    first, *rest = (f"{_short(name)} {number(name, worst.get(name))}" for name in _compared(report))
    place = f"trial {worst['trial']:g}"
    if report.scenario.batch_size > 1 and worst.get("record") is not None:
        place += f", record {worst['record']:g}"
    tail = cell.row.tail
    twentieth = "" if tail is None or tail.records < 20 else f"1 in 20: {number(tail.metric, tail.one_in_twenty)}"
    return first, _lines(*rest, place, twentieth)


def _control(cell: Cell) -> Value:
    """How many true samples are nearer to their recovery than all others, and how likely that is by chance."""
    found = cell.row.control
    if found is None:
        return NOTHING, ()
    others = f"{found.candidates} others" + ("" if found.same_label else " of any label")
    chance = min(found.p_mean, found.p_best, found.p_first)
    return f"{found.first} of {found.records} first", _lines(
        f"median {found.rank_median:g}, {others}", f"p {'<' if chance <= 1e-4 else '='} {max(chance, 1e-4):.2g}"
    )


def _floor(report: AuditReport, cell: Cell, name: str) -> Value:
    """The baseline's score in the same metrics, beside the attack's."""
    metrics = cell.row.floor.get(name, {})
    wanted = _compared(report) if cell.claims_records else (base(LABELS),)
    found = [(m, i) for want in wanted for m, i in metrics.items() if base(m) == want]
    if cell.baseline or not found:
        return NOTHING, ()
    (first, interval), *rest = found
    more = (f"{_short(base(m))} {number(m, i.value)}" for m, i in rest)
    return f"{_short(base(first))} {number(first, interval.value)}", _lines(bounds(first, interval), *more)


def _spent(row: Summary) -> Value:
    """The seconds are of all victims together; the counts are what a middling victim took."""
    counts = count("step", row.steps_median.value), count("evaluation", row.evaluations_median.value)
    return duration(row.seconds), _lines(*counts)


def _compared(report: AuditReport) -> tuple[str, ...]:
    """The scores in which one record, or one floor, is told; the first decides."""
    return ("ssim", "psnr") if report.data.kind == "image" else ("mse",)


def _short(name: str) -> str:
    return heading(name)[0].split(",")[0]


def _lines(*texts: str) -> tuple[str, ...]:
    return tuple(filter(None, texts))
