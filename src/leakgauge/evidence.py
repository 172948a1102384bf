"""What stands beside the scores of an audit: the control of each row, the order of exposure, the upper side.

All of it is computed from finished cells when the report is made, so that work on disk stays as it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from leakgauge import catalog
from leakgauge.blind import blind_success
from leakgauge.bounds import accounted_mechanism, upper_side
from leakgauge.control import closeness, draw_candidates, judge, ranks_of
from leakgauge.errors import LeakgaugeError
from leakgauge.exposure import alignment, exposure
from leakgauge.fl.summed import in_sum
from leakgauge.flags import NO_BETTER_THAN_CONTROL
from leakgauge.plan import parse_chain
from leakgauge.stage import Stage
from leakgauge.types import CRITERION, Exposure, Fact, Finding, Summary, cell_name


def controlled(
    stage: Stage, rows: Sequence[Summary], findings: Sequence[Finding], recovered: Mapping[str, Tensor]
) -> tuple[tuple[Summary, ...], tuple[Finding, ...]]:
    """Rows with their control, findings with the places of their records."""
    candidates = draw_candidates(stage.batch, stage.others, stage.scenario.seeds)
    floors = {name for name, attack in catalog.find("attacks").items() if attack.baseline}
    if candidates is None:
        return tuple(rows), tuple(findings)
    judged, places = [], dict[tuple[str, int], tuple[float, ...]]()
    for row in rows:
        name = cell_name(row.attack, row.defense, row.adaptive)
        ran = [f.trial for f in findings if cell_name(f.attack, f.defense, f.adaptive) == name and f.error is None]
        # In a sum of clients the records were picked out of more claims than there are candidates for.
        if row.attack in floors or name not in recovered or not ran or in_sum(parse_chain(row.defense)) > 1:
            judged.append(row)
            continue
        close = closeness(recovered[name][ran].to(stage.batch.inputs), stage.batch.inputs[ran], candidates.take(ran))
        found = judge(close, candidates.same_label)
        places |= {(name, t): tuple(r) for t, r in zip(ran, ranks_of(close).tolist(), strict=True)}
        flags = {*row.flags, *([NO_BETTER_THAN_CONTROL] if found.better is False else [])}
        judged.append(dataclasses.replace(row, control=found, flags=tuple(sorted(flags))))
    told = [
        dataclasses.replace(f, ranks=places.get((cell_name(f.attack, f.defense, f.adaptive), f.trial), ()))
        for f in findings
    ]
    return tuple(judged), tuple(told)


def exposures(stage: Stage, rows: Sequence[Summary], findings: Sequence[Finding]) -> tuple[Exposure, ...]:
    """For each attacked configuration the order of its records, beside what its strongest attack recovered."""
    floors = {name for name, attack in catalog.find("attacks").items() if attack.baseline}
    controls = {f.attack for f in findings if f.control}
    metric, higher = _criterion(stage)
    told = []
    for defense in dict.fromkeys(r.defense for r in rows if r.attack not in floors):
        try:
            aligned = alignment(stage, parse_chain(defense))
        except LeakgaugeError:
            continue  # the defence does not fit the model; its row says so
        if aligned is None:
            continue
        tried = [
            r for r in rows if r.defense == defense and r.attack not in floors | controls and r.success_rate.records
        ]
        best = max(tried, key=lambda r: _mean(r, metric, higher), default=None)
        scored = [] if best is None else [f for f in findings if _cell(f) == _cell(best)]
        told.append(exposure(defense, aligned, scored, metric, higher))
    return tuple(told)


def upper_sides(stage: Stage, configurations: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What nobody can exceed, per configuration; the blind guess is measured only where a bound needs it."""
    chains = {c: parse_chain(c) for c in configurations}
    kappa = None
    if any(accounted_mechanism(chain)[0] is not None for chain in chains.values()):
        knows = Fact.LABELS in stage.threat_model.facts
        kappa = blind_success(stage.data, stage.public, stage.others, stage.scenario.batch_size, by_label=knows)
    return {c: upper_side(chain, stage.scenario.local, kappa) for c, chain in chains.items()}


def _criterion(stage: Stage) -> tuple[str, bool]:
    name = CRITERION[stage.data.kind][0]
    return name, bool(catalog.get("metrics", name).higher_is_better)


def _mean(row: Summary, metric: str, higher: bool) -> float:
    found = row.metrics.get(f"{metric}_mean_per_image")
    if found is None or found.value is None:
        return float("-inf")
    return found.value if higher else -found.value


def _cell(of: Summary | Finding) -> tuple[str, str, bool]:
    return of.attack, of.defense, of.adaptive
