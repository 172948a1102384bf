"""Is a good score evidence that a record was recovered? Said here alone, for verdict, gate, report and budget.

A score by itself is none: mid-grey has an SSIM of 0.75 to a smooth X-ray, another digit one of 0.6, speckle on 8 x 8
pixels passes now and then. A record's score is credible if

- the recovery is nearer to it than every floor on the same record, in the metric of the criterion and in PSNR, and
- it is either *unmistakable*, 10 dB beyond the record's own thumbnail (for a table a hundredth of the error that
  counts), or the attack's control convinces: the recoveries as a whole are nearer to their own records than to others,
  at a level that chance reaches once in a thousand runs, and this record is nearest to its own.

An attack whose own objective failed, that took no step, or whose recoveries are on the whole no nearer than the mean of
public samples, has nothing but unmistakable records. Where there are too few others for the control to decide, a record
that is not unmistakable is undecided (None): it neither accuses nor clears.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from math import inf

from leakgauge.metrics.criterion import Scored, beats, criterion_of, gain, is_unmistakable
from leakgauge.types import Control, DataSpec, Finding, cell_name
from leakgauge.verdict.roles import floors_in, is_attack

Floors = Mapping[tuple[int, int], Sequence[Scored]]  # (trial, record) -> what each floor scores there
FAILING = frozenset({"objective-did-not-fall", "never-moved", "diverged"})
_CLOSENESS = "psnr"
_NEAREST = 1.5  # the first place, shared with one other at most: data sets hold some samples twice


def judged(
    findings: Sequence[Finding], data: DataSpec, controls: Mapping[str, Control], every: Sequence[Finding] | None = None
) -> list[Finding]:
    """The findings with what their scores are worth, record by record; floors and controls stay as they are.

    `controls` is by `cell_name`. The floors are looked up among `every`, the findings themselves unless given.
    """
    floors = _floors(findings if every is None else every)
    behind = _no_nearer_than_mean(findings, floors)
    return [_judged(f, data, controls.get(_cell(f)), floors, _cell(f) in behind) for f in findings]


def is_recovered(data: DataSpec, finding: Finding, record: int) -> bool:
    """Does the record meet the criterion, with a score that can be believed?"""
    return criterion_of(data).met(finding.records[record]) and is_credible(finding, record) is True


def is_undecided(data: DataSpec, finding: Finding, record: int) -> bool:
    """Does it meet the criterion, and are there too few others to tell whether by chance?"""
    return criterion_of(data).met(finding.records[record]) and is_credible(finding, record) is None


def is_credible(finding: Finding, record: int) -> bool | None:
    """As judged; a finding that was never judged is taken at its word."""
    return finding.credible[record] if record < len(finding.credible) else True


def _judged(finding: Finding, data: DataSpec, control: Control | None, floors: Floors, behind: bool) -> Finding:
    if not is_attack(finding) or finding.error is not None:
        return finding
    failed = bool(FAILING & set(finding.flags)) or behind
    credible: list[bool | None] = []
    for number, record in enumerate(finding.records):
        nearer = all(
            beats(m, record, floor)
            for floor in floors.get((finding.trial, number), [])
            for m in (criterion_of(data).metric, _CLOSENESS)
        )
        if not nearer or record.get(_CLOSENESS) is None:
            credible.append(False)
        elif is_unmistakable(data, record):
            credible.append(True)
        elif failed:
            credible.append(False)
        elif control is None or control.convincing is None:
            credible.append(None)
        else:
            first = number < len(finding.ranks) and finding.ranks[number] <= _NEAREST
            credible.append(control.convincing and first)
    return dataclasses.replace(finding, credible=tuple(credible))


def _floors(findings: Sequence[Finding]) -> Floors:
    found: dict[tuple[int, int], list[Scored]] = {}
    for f in floors_in(findings):
        for number, record in enumerate(f.records):
            found.setdefault((f.trial, number), []).append(record)
    return found


def _no_nearer_than_mean(findings: Sequence[Finding], floors: Floors) -> frozenset[str]:
    """Cells whose recoveries are on the whole no nearer than the best floor on the same records."""
    gains: dict[str, list[float]] = {}
    for f in findings:
        for number, record in enumerate(f.records):
            mine = gain(_CLOSENESS, record.get(_CLOSENESS))
            best = max((gain(_CLOSENESS, r.get(_CLOSENESS)) for r in floors.get((f.trial, number), [])), default=-inf)
            if -inf not in (mine, best):
                gains.setdefault(_cell(f), []).append(mine - best)
    return frozenset(cell for cell, values in gains.items() if sum(values) <= 0)


def _cell(finding: Finding) -> str:
    return cell_name(finding.attack, finding.defense, finding.adaptive)
