"""What stands beside the scores of an audit: the control of each row, the order of exposure, the upper side.

All of it is computed from finished cells when the report is made, so that work on disk stays as it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from leakgauge.client.summed import in_sum
from leakgauge.errors import LeakgaugeError
from leakgauge.metrics.criterion import criterion_of, gain
from leakgauge.metrics.worst_case import answers_in
from leakgauge.setup.plan import parse_chain
from leakgauge.setup.setup import Setup
from leakgauge.types import Control, Exposure, Fact, Finding, Summary, UpperSide, cell_name
from leakgauge.verdict.blind_guess import blind_success
from leakgauge.verdict.bounds import accounted_mechanism, upper_side
from leakgauge.verdict.closeness import closeness, draw_candidates, judge, nearest_of, ranks_of
from leakgauge.verdict.credible import judged
from leakgauge.verdict.exposure import alignment, exposure
from leakgauge.verdict.film import records_in
from leakgauge.verdict.roles import attack_rows, is_floor


def weighed(
    setup: Setup, findings: Sequence[Finding], recovered: Mapping[str, Tensor], floors: Sequence[Finding] = ()
) -> tuple[list[Finding], dict[str, Control]]:
    """The findings with the places of their records and what their scores are worth; the control of each cell.

    `floors` are findings of floors that are not among the others.
    """
    findings, controls = _controlled(setup, findings, recovered)
    return judged(findings, setup.data, controls, every=[*floors, *findings]), controls


def _controlled(
    setup: Setup, findings: Sequence[Finding], recovered: Mapping[str, Tensor]
) -> tuple[list[Finding], dict[str, Control]]:
    candidates = draw_candidates(setup.batch, setup.others, setup.scenario.seeds)
    if candidates is None:
        return list(findings), {}
    cells: dict[str, list[Finding]] = {}
    for f in findings:
        cells.setdefault(_name(f), []).append(f)
    controls, places = dict[str, Control](), dict[tuple[str, int], tuple[float, ...]]()
    for name, group in cells.items():
        ran = [f for f in group if f.error is None]
        # In a sum of clients the records were picked out of more claims than there are candidates for.
        summed = in_sum(parse_chain(group[0].defense)) > 1
        if is_floor(group[0].attack) or name not in recovered or not ran or summed:
            continue
        trials = [f.trial for f in ran]
        size, like = setup.scenario.batch_size, setup.batch.inputs
        claimed = _claims(ran, size).to(like.device)
        answers = answers_in(records_in(recovered[name][trials], len(ran[0].film)).to(like), size).unbind(1)
        close = nearest_of([closeness(answer, like[trials], candidates.take(trials), claimed) for answer in answers])
        controls[name] = judge(close, candidates.same_label)
        places |= {(name, t): tuple(r) for t, r in zip(trials, ranks_of(close.matched).tolist(), strict=True)}
    return [dataclasses.replace(f, ranks=places.get((_name(f), f.trial), ())) for f in findings], controls


def _claims(findings: Sequence[Finding], size: int) -> Tensor:
    """(T, N) bool, in the order of the truth: a record that was claimed has a score."""
    rows = [[any(v is not None for v in record.values()) for record in f.records[:size]] for f in findings]
    return torch.tensor(rows, dtype=torch.bool).reshape(len(findings), -1)


def _name(finding: Finding) -> str:
    return cell_name(finding.attack, finding.defense, finding.adaptive)


def exposures(setup: Setup, rows: Sequence[Summary], findings: Sequence[Finding]) -> tuple[Exposure, ...]:
    """For each attacked configuration the order of its records, beside what its strongest attack recovered."""
    metric = criterion_of(setup.data).metric
    attacks, found = attack_rows(rows, findings), []
    for defense in dict.fromkeys(r.defense for r in rows if not is_floor(r.attack)):
        try:
            aligned = alignment(setup, parse_chain(defense))
        except LeakgaugeError:
            continue  # the defense does not fit the model; its row says so
        if aligned is None:
            continue
        tried = [r for r in attacks if r.defense == defense and r.success_rate.records]
        best = max(tried, key=lambda r: _mean(r, metric), default=None)
        scored = [] if best is None else [f for f in findings if _cell(f) == _cell(best)]
        found.append(exposure(defense, aligned, scored, metric))
    return tuple(found)


def upper_sides(setup: Setup, configurations: Sequence[str]) -> dict[str, UpperSide]:
    """What nobody can exceed, per configuration; the blind guess is measured only where a bound needs it."""
    chains = {c: parse_chain(c) for c in configurations}
    kappa = None
    if any(accounted_mechanism(chain)[0] is not None for chain in chains.values()):
        knows = Fact.LABELS in setup.threat_model.facts
        kappa = blind_success(setup.data, setup.public, setup.others, setup.scenario.batch_size, by_label=knows)
    return {c: upper_side(chain, setup.scenario.local, kappa) for c, chain in chains.items()}


def _mean(row: Summary, metric: str) -> float:
    found = row.metrics.get(f"{metric}_mean_per_image")
    return gain(metric, None if found is None else found.value)


def _cell(of: Summary | Finding) -> tuple[str, str, bool]:
    return of.attack, of.defense, of.adaptive
