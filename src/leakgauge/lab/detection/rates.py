"""Thresholds from one half of the models, rates from the other."""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leakgauge.checks.inspection import checks, judge, measure
from leakgauge.checks.suspicion import HIGH
from leakgauge.checks.thresholds import Thresholds
from leakgauge.errors import NotApplicable
from leakgauge.lab.detection.cases import Case, built
from leakgauge.metrics.intervals import clopper_pearson
from leakgauge.types import Interval

_MOST = 1e6  # larger scores count as this
Measures = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Scored:
    """One model and the score of every check, before any threshold."""

    case: Case
    weights: Measures  # of the checkpoint alone
    probed: Measures  # with a few samples of the client's own
    seconds: float


@dataclass(frozen=True)
class Row:
    """How many models of a family were called tampered, with the exact 95 % interval."""

    family: str
    tampered: bool
    models: int
    weights: Interval  # from the weights alone
    probed: Interval  # with samples


@dataclass(frozen=True)
class CheckRow:
    """For each check the share of a family's models in which it reports something, with its exact interval."""

    family: str
    models: int
    shares: Mapping[str, Interval]


def score_all(
    cases: Sequence[Case], data_root: Path | None = None, watch: Callable[[int, int], None] = lambda *_: None
) -> list[Scored]:
    """Build and measure every case; a model that a server cannot prepare is left out."""
    scored = []
    for number, case in enumerate(cases):
        try:
            model, data, samples = built(case, data_root)
        except NotApplicable:
            continue
        began = time.perf_counter()
        weights, probed = measure(model, data), measure(model, data, samples)
        scored.append(Scored(case, weights, probed, (time.perf_counter() - began) / 2))
        watch(number + 1, len(cases))
    return scored


def halves(scored: Sequence[Scored]) -> tuple[list[Scored], list[Scored]]:
    """Two halves with every second model of each family: to choose thresholds, and to report rates."""
    groups: dict[str, list[Scored]] = {}
    for one in scored:
        groups.setdefault(one.case.family, []).append(one)
    return (
        [one for group in groups.values() for one in group[::2]],
        [one for group in groups.values() for one in group[1::2]],
    )


def chosen_thresholds(scored: Sequence[Scored]) -> Thresholds:
    """Each threshold lies halfway between the highest clean score and the median of the tampered scores above it.

    If no tampered score lies above the clean ones, a check keeps its usual threshold, or one just above them.
    """
    usual = Thresholds()
    fields: dict[str, float] = {}
    for name, check in checks().items():
        if check.severity != HIGH:
            continue
        reduce = min if check.everywhere else max
        found = [(one.case.tampered, [m.score for m in one.probed.get(name, {}).values()]) for one in scored]
        clean = [reduce(values) for tampered, values in found if values and not tampered]
        bad = [reduce(values) for tampered, values in found if values and tampered]
        top = max((c for c in clean if math.isfinite(c)), default=-math.inf)
        above = [b for b in bad if b > top]
        if above and math.isfinite(top):
            fields[check.field] = (top + min(statistics.median(above), _MOST)) / 2
        elif top >= getattr(usual, check.field):
            fields[check.field] = top * 1.05 + 1e-6
    return dataclasses.replace(usual, **fields)


def rates(scored: Sequence[Scored], thresholds: Thresholds) -> list[Row]:
    """One row per family, then all clean models together."""
    families: dict[str, list[Scored]] = {}
    for one in scored:
        families.setdefault(one.case.family, []).append(one)
    clean = [one for one in scored if not one.case.tampered]
    rows = [_row(family, group, thresholds) for family, group in families.items()]
    return [*rows, _row("clean, all", clean, thresholds)]


def by_check(scored: Sequence[Scored], thresholds: Thresholds) -> list[CheckRow]:
    """One row per family, with samples: which checks report something, each by itself."""
    families: dict[str, list[set[str]]] = {}
    for one in scored:
        reported = {s.id for s in judge(one.probed, thresholds)}
        families.setdefault(one.case.family, []).append(reported)
    return [
        CheckRow(family, len(group), {name: _rate([name in reported for reported in group]) for name in checks()})
        for family, group in families.items()
    ]


def alarms(one: Scored, thresholds: Thresholds) -> tuple[str, ...]:
    """Ids of the checks that call this model tampered."""
    return tuple(dict.fromkeys(s.id for s in judge(one.probed, thresholds) if s.severity == HIGH))


def _row(family: str, group: Sequence[Scored], thresholds: Thresholds) -> Row:
    return Row(
        family,
        group[0].case.tampered,
        len(group),
        _rate([_found(one.weights, thresholds) for one in group]),
        _rate([_found(one.probed, thresholds) for one in group]),
    )


def _found(measured: Measures, thresholds: Thresholds) -> bool:
    return any(s.severity == HIGH for s in judge(measured, thresholds))


def _rate(hits: Sequence[bool]) -> Interval:
    low, high = clopper_pearson(sum(hits), len(hits))
    return Interval(sum(hits) / len(hits), low, high)
