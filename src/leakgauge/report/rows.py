"""The attack x defense table as words: the same columns and digits on the page and in Markdown."""

from __future__ import annotations

from dataclasses import dataclass

from leakgauge.metrics import has_categories
from leakgauge.metrics.criterion import gain
from leakgauge.report.cells import LABELS, Cell, baselines, by_defense, criterion
from leakgauge.report.numbers import NOTHING, base, bounds, counted, duration, heading, number, percent, rate_bounds
from leakgauge.types import UNDEFENDED, AuditReport, Guarantee, Interval, Summary
from leakgauge.verdict.credible import is_credible
from leakgauge.verdict.exposure import worst_first
from leakgauge.verdict.roles import floor_names

EXPOSED_NOTE = (
    "Where to look first: the cosine of each record's own gradient with what is shared, which the client can compute "
    "before any attack. It is an estimate, not a bound, and no result was chosen by it."
)
_EXPOSED = 6  # records of a configuration
_SOLVED, _RIGHT = "asr_content", "asr_label"  # shares of trials, given in the small print
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

    @property
    def words(self) -> list[str]:
        """Each column's value and small print in one."""
        if self.error is not None:
            return [f"could not run: {self.error}", *[""] * (len(self.values) - 1)]
        return [" · ".join([value, *small]) for value, small in self.values]


def columns(report: AuditReport) -> list[Column]:
    measured = [Column(*heading(m)) for m in _metrics(report)]
    floors = [Column(f"Floor: {name}") for name in floor_names()]
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
    """Grouped by defense; the baselines' own rows come last."""
    ordered = [cell for group in by_defense(report).values() for cell in group] + baselines(report)
    return [_row(report, cell) for cell in ordered]


@dataclass(frozen=True)
class Exposed:
    """The record that came out best over all attacks and configurations, the bare update included."""

    cell: Cell
    credible: bool | None  # as the verdict counts it; None: too few others to decide
    scores: tuple[str, ...]  # "SSIM 1.000", "PSNR 42.0"
    place: str  # "trial 2, record 0"


def most_exposed_of(report: AuditReport) -> Exposed | None:
    """Credible scores go before those that may be chance, and these before those that are no evidence."""
    rule = criterion(report)
    ran = [c for group in by_defense(report).values() for c in group if c.row.error is None and not c.control]
    scored = [cell for cell in ran if cell.row.worst.get(rule.metric) is not None]
    if not scored:
        return None
    worth = {True: 0, None: 1, False: 2}
    cell = min(scored, key=lambda c: (worth[_is_credible(c)], -gain(rule.metric, c.row.worst[rule.metric])))
    worst = cell.row.worst
    scores = tuple(f"{_short(name)} {number(name, worst.get(name))}" for name in _compared(report))
    return Exposed(cell, _is_credible(cell), scores, _place(report, worst["trial"], worst.get("record")))


def most_exposed(report: AuditReport) -> str:
    """The same in one line; empty if no record was scored."""
    found = most_exposed_of(report)
    if found is None:
        return ""
    row, others = found.cell.row, len(report.verdict.configurations) > 1
    bare = "without defense" + (", for comparison" if others else "")
    where = bare if row.defense == UNDEFENDED else f"against defense {row.defense}"
    said = f"{', '.join((*found.scores, found.place))}, by {row.attack}, {found.cell.style}, {where}"
    if found.credible:
        return f"Most exposed record: {said}."
    why = "too few other samples to exclude chance" if found.credible is None else "no evidence of a recovery"
    return f"Nearest to any record: {said}: {why}."


def _is_credible(cell: Cell) -> bool | None:
    """Is the score of the row's most exposed record evidence?"""
    worst = cell.row.worst
    index = int(worst.get("record") or 0)
    finding = next((f for f in cell.findings if f.trial == worst.get("trial")), None)
    return True if finding is None else is_credible(finding, index)


def guarantee_text(found: Guarantee | None) -> str:
    return "" if found is None else f"Accounted guarantee: ε = {found.epsilon:g}, δ = {found.delta:g} per {found.unit}."


def _metrics(report: AuditReport) -> list[str]:
    """Those of this kind of data first, then any that we do not know; MSE of images is in the JSON."""
    present = dict.fromkeys(m for row in report.summary for m in row.metrics)
    order = _ORDER.get(report.data.kind, _ORDER["tabular"])
    order = ("cells", *order) if has_categories(report.data) else order
    known = [m for name in order for m in present if base(m) == name]
    more = [m for m in present if base(m) not in {*order, "mse", "psnr", "ssim", "detail", "cells", _SOLVED, _RIGHT}]
    return known + more


def _row(report: AuditReport, cell: Cell) -> Row:
    row, floors = cell.row, floor_names()
    measured = [(m, row.metrics.get(m, Interval(None, None, None))) for m in _metrics(report)]
    pairs: list[tuple[Value, float | None]] = [
        (_rate(report, cell), row.success_rate.value if cell.claims_records else None),
        ((str(row.trials), ()), row.trials),
        ((str(row.failed), ()), row.failed),
        *((_score(row, m, i), i.value) for m, i in measured),
        (_worst(report, cell), row.worst.get(_compared(report)[0])),
        _control(cell),
        *(_floor(report, cell, name) for name in floors),
        ((", ".join(row.flags) or NOTHING, ()), len(row.flags)),
        (_spent(row), row.seconds),
    ]
    values, keys = zip(*pairs, strict=True)
    return Row(row.attack, cell.style, row.defense, cell.baseline, row.error, values, keys)


def _score(row: Summary, metric: str, found: Interval) -> Value:
    """Of labels also how many need no statistics, whatever the interval says, and in how many trials all are right."""
    proven = f"{row.labels_proven} proven" if row.labels_proven else ""
    labels = (proven, *_share_of_trials(row, _RIGHT, "all right")) if metric == LABELS else ()
    return number(metric, found.value), _lines(bounds(metric, found), *labels)


def _share_of_trials(row: Summary, name: str, said: str) -> tuple[str, ...]:
    """ "solved 98 %" and its interval, as small print: Wei et al. call these ASR_c and ASR_l."""
    found = row.metrics.get(f"{name}_share_of_trials")
    return () if found is None else (f"{said} {number(name, found.value)}", bounds(name, found))


def _rate(report: AuditReport, cell: Cell) -> Value:
    rate = cell.row.success_rate
    if not cell.claims_records:
        return NOTHING, ("claims no records",)
    criterion = rate.criterion if len(_criteria(report)) > 1 else ""
    return percent(rate.value), _lines(
        rate_bounds(rate), f"{rate.recovered} of {rate.records}", cell.doubtful, criterion
    )


def _criteria(report: AuditReport) -> list[str]:
    return list(dict.fromkeys(row.success_rate.criterion for row in report.summary))


def _worst(report: AuditReport, cell: Cell) -> Value:
    worst = cell.row.worst
    if not worst or worst.get("trial") is None:
        return NOTHING, ()
    first, *rest = (f"{_short(name)} {number(name, worst.get(name))}" for name in _compared(report))
    tail = cell.row.tail
    twentieth = "" if tail is None or tail.records < 20 else f"1 in 20: {number(tail.metric, tail.one_in_twenty)}"
    credible = True if cell.baseline or cell.control else _is_credible(cell)
    doubt = {True: "", None: "undecided", False: "not credible"}[credible]
    return first, _lines(*rest, _place(report, worst["trial"], worst.get("record")), twentieth, doubt)


def _place(report: AuditReport, trial: float | None, record: float | None) -> str:
    """ "trial 2", and which record of it where there are several."""
    several = report.scenario.batch_size > 1 and record is not None
    return f"trial {trial:g}" + (f", record {record:g}" if several else "")


def _control(cell: Cell) -> tuple[Value, float | None]:
    """How many true samples are nearer to their recovery than all others, and how likely that is by chance."""
    found = cell.row.control
    if found is None:
        return (NOTHING, ()), None
    others = f"{found.candidates} others" + ("" if found.same_label else " of any label")
    chance = min(found.p_mean, found.p_best, found.p_first)
    p = f"p {'<' if chance <= 1e-4 else '='} {max(chance, 1e-4):.2g}"
    value = f"{found.first} of {found.records} first", _lines(f"median {found.rank_median:g}, {others}", p)
    return value, found.first / found.records if found.records else None


def _floor(report: AuditReport, cell: Cell, name: str) -> tuple[Value, float | None]:
    """The baseline's score in the same metrics, beside the attack's; it sorts by the one that decides."""
    metrics = cell.row.floor.get(name, {})
    wanted = _compared(report) if cell.claims_records else (base(LABELS),)
    found = [(m, i) for want in wanted for m, i in metrics.items() if base(m) == want]
    key = metrics.get(f"{_compared(report)[0]}_mean_per_image")
    sorts_by = None if cell.baseline or key is None else key.value
    if cell.baseline or not found:
        return (NOTHING, ()), sorts_by
    (first, interval), *_ = found
    words = [f"{_short(base(m))} {number(m, i.value)}" for m, i in found]
    return (words[0], _lines(bounds(first, interval), *words[1:])), sorts_by


def _spent(row: Summary) -> Value:
    """The seconds are of all victims together; the counts are those of the median victim."""
    counts = counted("step", row.steps_median.value), counted("evaluation", row.evaluations_median.value)
    return duration(row.seconds), _lines(*counts, *_share_of_trials(row, _SOLVED, "solved"))


def _compared(report: AuditReport) -> tuple[str, ...]:
    """The scores that are shown of one record or one floor; the first decides."""
    if has_categories(report.data):
        return ("cells", "mse")
    return ("ssim", "psnr") if report.data.kind == "image" else ("mse",)


def _short(name: str) -> str:
    return heading(name)[0].split(",")[0]


def _lines(*texts: str) -> tuple[str, ...]:
    return tuple(filter(None, texts))


@dataclass(frozen=True)
class ExposedGroup:
    defense: str
    records: tuple[tuple[str, str], ...]  # place and value, the most exposed first
    agreement: str


def exposed(report: AuditReport) -> list[ExposedGroup]:
    """Per configuration the records that an update exposes most, by the estimate that needs no attack.

    Those where all records are equally exposed (one record, nothing hides it) are left out.
    """
    groups = []
    for found in report.exposure:
        if len({round(value, 3) for row in found.alignment for value in row}) < 2:
            continue
        first = worst_first(found)[:_EXPOSED]
        records = tuple((_place(report, trial, record), _signed(f"{value:.2f}")) for trial, record, value in first)
        agreement = "Too few records, or too little difference between them, to compare it with what was recovered."
        if found.agreement is not None:
            said = _signed(f"{found.agreement:+.2f}")
            agreement = f"Rank correlation with what the strongest attack recovered: {said}."
        groups.append(ExposedGroup(found.defense, records, agreement))
    return groups


def _signed(text: str) -> str:
    return text.replace("-", "−")
