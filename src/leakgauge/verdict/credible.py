"""Is a good score evidence that a record was recovered? Decided here alone, for verdict, gate, report and early stop.

A score by itself is none: mid-grey has an SSIM of 0.75 to a smooth X-ray, another digit one of 0.6, speckle on 8 x 8
pixels passes now and then. A record's score is credible if

- the recovery is nearer to it than every floor on the same record, in the metric of the criterion and in PSNR, and
- it is either *unmistakable*, 10 dB beyond the record's own thumbnail (for a table a hundredth of the error that
  counts), or the attack's control convinces: the recoveries as a whole are nearer to their own records than to others,
  at a level that chance reaches once in a thousand runs, and this record is nearest to its own.

An attack whose own objective failed, that took no step, or whose recoveries are on the whole no nearer than the mean of
public samples, has only unmistakable records. Where there are too few others for the control to decide, a record that
is not unmistakable is undecided (None): it neither accuses nor clears.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from math import inf

import torch
from torch import Tensor

from leakgauge.client.summed import in_sum
from leakgauge.metrics.criterion import Scored, beats, criterion_of, gain, is_unmistakable
from leakgauge.metrics.worst_case import answers_in
from leakgauge.setup.plan import parse_chain
from leakgauge.setup.setup import Setup
from leakgauge.types import Control, DataSpec, Finding
from leakgauge.verdict.closeness import closeness, draw_candidates, judge, nearest_of, ranks_of
from leakgauge.verdict.film import records_in
from leakgauge.verdict.roles import cell_of, floors_in, is_attack, is_floor

Floors = Mapping[tuple[int, int], Sequence[Scored]]  # (trial, record) -> what each floor scores there
FAILING = frozenset({"objective-did-not-fall", "never-moved", "diverged"})
_CLOSENESS = "psnr"
_NEAREST = 1.5  # the first place, shared with one other at most: data sets hold some samples twice


def weighed(
    setup: Setup, findings: Sequence[Finding], recovered: Mapping[str, Tensor], floors: Sequence[Finding] = ()
) -> tuple[list[Finding], dict[str, Control]]:
    """The findings with their records' ranks and whether their scores are credible, and the control of each cell.

    `recovered` has the pictures of each cell, (T, rows, *shape). `floors` are findings of floors that are not among
    `findings`.
    """
    candidates = draw_candidates(setup.batch, setup.others, setup.scenario.seeds)
    cells: dict[str, list[Finding]] = {}
    for f in findings if candidates is not None else ():
        cells.setdefault(cell_of(f), []).append(f)
    controls, places = dict[str, Control](), dict[tuple[str, int], tuple[float, ...]]()
    size, true = setup.scenario.batch_size, setup.batch.inputs
    for name, group in cells.items():
        ran = [f for f in group if f.error is None]
        # In a sum of clients the records were picked out of more claims than there are candidates for.
        summed = in_sum(parse_chain(group[0].defense)) > 1
        if is_floor(group[0].attack) or name not in recovered or not ran or summed or candidates is None:
            continue
        trials = [f.trial for f in ran]
        rows = [[any(v is not None for v in record.values()) for record in f.records[:size]] for f in ran]
        claimed = torch.tensor(rows, dtype=torch.bool, device=true.device).reshape(len(ran), -1)  # (T, N): has a score
        answers = answers_in(records_in(recovered[name][trials], len(ran[0].film)).to(true), size).unbind(1)
        close = nearest_of([closeness(answer, true[trials], candidates.take(trials), claimed) for answer in answers])
        controls[name] = judge(close, candidates.same_label)
        places |= {(name, t): tuple(r) for t, r in zip(trials, ranks_of(close.matched).tolist(), strict=True)}
    if candidates is not None:
        findings = [dataclasses.replace(f, ranks=places.get((cell_of(f), f.trial), ())) for f in findings]
    return judged(findings, setup.data, controls, every=[*floors, *findings]), controls


def judged(
    findings: Sequence[Finding], data: DataSpec, controls: Mapping[str, Control], every: Sequence[Finding] | None = None
) -> list[Finding]:
    """The findings, each record marked credible or not; floors and decoys stay as they are.

    `controls` is by `cell_name`. The floors are looked up among `every`, the findings themselves unless given.
    """
    floors: dict[tuple[int, int], list[Scored]] = {}
    for f in floors_in(findings if every is None else every):
        for number, record in enumerate(f.records):
            floors.setdefault((f.trial, number), []).append(record)
    behind = _no_nearer_than_mean(findings, floors)
    return [_judged(f, data, controls.get(cell_of(f)), floors, cell_of(f) in behind) for f in findings]


def is_recovered(data: DataSpec, finding: Finding, record: int) -> bool:
    """Does the record meet the criterion, with a credible score?"""
    return criterion_of(data).met(finding.records[record]) and is_credible(finding, record) is True


def is_undecided(data: DataSpec, finding: Finding, record: int) -> bool:
    """Does it meet the criterion, and are there too few others to exclude chance?"""
    return criterion_of(data).met(finding.records[record]) and is_credible(finding, record) is None


def is_credible(finding: Finding, record: int) -> bool | None:
    """As judged; the scores of a finding that was never judged are credible."""
    return finding.credible[record] if record < len(finding.credible) else True


def _judged(finding: Finding, data: DataSpec, control: Control | None, floors: Floors, behind: bool) -> Finding:
    if not is_attack(finding) or finding.error is not None:
        return finding
    failed = bool(FAILING & set(finding.flags)) or behind
    metrics = (criterion_of(data).metric, _CLOSENESS)
    credible: list[bool | None] = []
    for number, record in enumerate(finding.records):
        nearer = all(beats(m, record, floor) for floor in floors.get((finding.trial, number), []) for m in metrics)
        if not nearer or record.get(_CLOSENESS) is None:
            credible.append(False)
        elif failed or is_unmistakable(data, record):
            credible.append(is_unmistakable(data, record))
        elif control is None or control.convincing is None:
            credible.append(None)
        else:
            first = number < len(finding.ranks) and finding.ranks[number] <= _NEAREST
            credible.append(control.convincing and first)
    return dataclasses.replace(finding, credible=tuple(credible))


def _no_nearer_than_mean(findings: Sequence[Finding], floors: Floors) -> frozenset[str]:
    """Cells whose recoveries are on the whole no nearer than the best floor on the same records."""
    gains: dict[str, list[float]] = {}
    for f in findings:
        for number, record in enumerate(f.records):
            mine = gain(_CLOSENESS, record.get(_CLOSENESS))
            best = max((gain(_CLOSENESS, r.get(_CLOSENESS)) for r in floors.get((f.trial, number), [])), default=-inf)
            if -inf not in (mine, best):
                gains.setdefault(cell_of(f), []).append(mine - best)
    return frozenset(cell for cell, values in gains.items() if sum(values) <= 0)
