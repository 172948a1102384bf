"""Two audits on one page: what differs in the set-up, and per attack and defense what differs in the result.

Every difference is the second audit less the first, with a 95 % interval. For the share of recovered records it is
Newcombe's (1998, method 10), which joins the two Wilson intervals and holds for none and for all. For a mean score the
trials are resampled: pairwise where both audits attacked the same victims, which is the sharper comparison, else apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from leakgauge.report.cells import CREDIBLE_NOTE, Cell, cells, criterion
from leakgauge.report.html import SCRIPT, rendered, words
from leakgauge.report.numbers import NOTHING, bounds, number, percent, rate_bounds
from leakgauge.types import AuditReport, Interval, Rate

VICTIMS = ("data", "batch_size", "batch_labels", "partition", "seed", "trials")  # what decides who is attacked
_Z = 1.959964  # of a two-sided 95 % interval
_RESAMPLES = 2000
_SCORE = {"image": "ssim", "tabular": "mse"}


@dataclass(frozen=True)
class Difference:
    """One attack on one configuration in both audits; None where an audit did not measure it."""

    attack: str
    defense: str
    adaptive: bool
    first: Cell | None
    second: Cell | None
    rate: Interval  # share of records recovered
    score: Interval  # mean score over the records; see `Comparison.score`


@dataclass(frozen=True)
class Comparison:
    settings: tuple[tuple[str, str, str], ...]  # what differs in the scenarios: key, first, second
    score: str  # the metric whose means are compared: ssim or mse
    paired: bool  # were the same victims attacked?
    doubts: tuple[str, ...]  # reasons not to compare
    differences: tuple[Difference, ...]


def compare(first: AuditReport, second: AuditReport) -> Comparison:
    """Rows in the order of the first audit; those that only the second has come last."""
    score = _SCORE.get(first.data.kind, _SCORE["tabular"])
    a, b = first.scenario.as_dict(), second.scenario.as_dict()
    changed = [key for key in a if a[key] != b[key]]
    paired = not set(changed) & set(VICTIMS) and first.data == second.data
    doubts: tuple[str, ...] = ()
    if first.data.kind != second.data.kind:
        doubts = (f"one audit is of {first.data.kind} data, the other of {second.data.kind} data",)
    elif criterion(first) != criterion(second):
        doubts = ("the two audits do not agree on when a record counts as recovered",)
    ours, theirs = (
        {(c.row.attack, c.row.defense, c.row.adaptive): c for c in cells(report) if not c.baseline}
        for report in (first, second)
    )
    differences = []
    for key in dict.fromkeys([*ours, *theirs]):
        one, other = ours.get(key), theirs.get(key)
        rate = mean = Interval(None, None, None)
        if one and other and not doubts and one.row.error is None and other.row.error is None:
            rate = rate_difference(one.row.success_rate, other.row.success_rate)
            mean = mean_difference(_means(one, score), _means(other, score), paired)
        differences.append(Difference(*key, one, other, rate, mean))
    settings = tuple((key, _text(a[key]), _text(b[key])) for key in changed)
    return Comparison(settings, score, paired, doubts, tuple(differences))


def excludes_zero(difference: Interval) -> bool:
    """Does the interval leave zero out?"""
    low, high = difference.low, difference.high
    return low is not None and high is not None and (low > 0 or high < 0)


def rate_difference(first: Rate, second: Rate) -> Interval:
    """Second less first; records are treated as independent, and the two audits too."""
    if not first.records or not second.records:
        return Interval(None, None, None)
    (low1, high1), (low2, high2) = _wilson(first), _wilson(second)
    gap = second.value - first.value
    down = sqrt((second.value - low2) ** 2 + (high1 - first.value) ** 2)
    up = sqrt((high2 - second.value) ** 2 + (first.value - low1) ** 2)
    return Interval(gap, max(-1.0, gap - down), min(1.0, gap + up))


def mean_difference(first: Mapping[int, float], second: Mapping[int, float], paired: bool) -> Interval:
    """Trial -> its mean score, in both audits; second less first. Trials that only one has scored drop out of pairs."""
    shared = first.keys() & second.keys()
    a, b = (np.array([s[t] for t in sorted(shared if paired else s)]) for s in (first, second))
    if not len(a) or not len(b):
        return Interval(None, None, None)
    gap = float(b.mean() - a.mean())
    if min(len(a), len(b)) == 1:
        return Interval(gap, None, None)
    draw = np.random.default_rng(0)
    of_a = draw.integers(len(a), size=(_RESAMPLES, len(a)))
    of_b = of_a if paired else draw.integers(len(b), size=(_RESAMPLES, len(b)))
    low, high = np.percentile(b[of_b].mean(1) - a[of_a].mean(1), [2.5, 97.5])
    return Interval(gap, float(low), float(high))


def _wilson(rate: Rate) -> tuple[float, float]:
    n, p = rate.records, rate.value
    middle = (p + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z / (1 + _Z**2 / n) * sqrt(p * (1 - p) / n + _Z**2 / (4 * n**2))
    return max(0.0, middle - half), min(1.0, middle + half)


def _means(cell: Cell, score: str) -> dict[int, float]:
    return {f.trial: value for f in cell.findings if f.error is None and (value := f.scores.get(score)) is not None}


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k}={v}" for k, v in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(str, value)) or NOTHING
    return NOTHING if value is None else str(value)


def to_comparison(first: AuditReport, second: AuditReport, names: tuple[str, str]) -> str:
    """`names`: what the two audits are called on the page, their folders for instance."""
    found = compare(first, second)
    page = {
        "script": SCRIPT,
        "credible_note": CREDIBLE_NOTE,
        "found": found,
        "audits": [words(report) | {"name": name} for report, name in zip((first, second), names, strict=True)],
        "rows": [_row(d, f"{found.score}_mean_per_image") for d in found.differences],
        "score_name": found.score.upper(),
    }
    return rendered("comparison.html.j2", page)


def _row(d: Difference, metric: str) -> dict[str, Any]:
    first, second = (next((f.spec for f in cell.findings), "") if cell else "" for cell in (d.first, d.second))
    return {
        "attack": d.attack,
        "style": "adaptive" if d.adaptive else "plain",
        "defense": d.defense,
        "specs": [f"first: {first}", f"second: {second}"] if first and second and first != second else [],
        "first": _measured(d.first, metric),
        "second": _measured(d.second, metric),
        "rate": _gap(d.rate, lambda v: f"{100 * v:+.1f}".replace("-", "−")),
        "score": _gap(d.score, lambda v: f"+{number(metric, v)}".replace("+−", "−")),
    }


def _measured(cell: Cell | None, metric: str) -> dict[str, Any]:
    """One audit's side: share recovered and mean score, each with its interval; `key` is what the share sorts by."""
    if cell is None or cell.row.error is not None:
        return {"rate": "not measured" if cell is None else "could not run", "score": NOTHING, "key": None}
    rate, mean = cell.row.success_rate, cell.row.metrics.get(metric, Interval(None, None, None))
    side: dict[str, Any] = {"rate": NOTHING, "small": ["claims no records"], "key": None}
    if cell.claims_records:
        small = [rate_bounds(rate), f"{rate.recovered} of {rate.records}"]
        side = {"rate": percent(rate.value), "small": small, "key": rate.value}
    return side | {"score": number(metric, mean.value), "score_small": bounds(metric, mean)}


def _gap(found: Interval, write: Callable[[float], str]) -> dict[str, Any]:
    """A difference, its interval as small print, and whether that leaves zero out."""
    low, high = found.low, found.high
    return {
        "value": NOTHING if found.value is None else write(found.value),
        "small": "" if low is None or high is None else f"[{write(low)}, {write(high)}]",
        "key": found.value,
        "settled": excludes_zero(found),
    }
