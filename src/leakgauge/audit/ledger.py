"""The assumption ledger: what each fact that the attacker was given was worth, one fact changed at a time.

The strongest attack of every configuration is run once more per fact, on the same victims and seeds: with the labels
where it inferred them and the other way round, with BatchNorm statistics, without public samples, with a learning rate
wrong by a factor of two, with a batch size wrong by one. What cannot be changed is listed with the reason. One change
at a time says nothing of two together, and another attack may miss a fact less.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch.nn.modules.batchnorm import _BatchNorm

from leakgauge import catalog
from leakgauge.recording.triage import first_observation
from leakgauge.setup.plan import Cell
from leakgauge.setup.setup import Setup
from leakgauge.types import CRITERION, Ablation, Attack, Fact, Finding, Summary, Verdict
from leakgauge.verdict.summary import summarise

CHANGEABLE = ("threat_model", "assumed")  # fields of a setup that a change may give another value
Rerun = Callable[[str, Setup, Cell], Sequence[Finding]]  # what is changed, the stage with it, the cell


@dataclass(frozen=True)
class Change:
    """One fact as it was and as it is tried; without a stage it cannot be changed."""

    fact: str
    audit: str
    instead: str
    setup: Setup | None = None
    why_not: str = ""


def ledger(
    setup: Setup,
    cells: Sequence[Cell],
    findings: Sequence[Finding],
    verdict: Verdict,
    rerun: Rerun,
    watch: Callable[[str], None] = lambda _: None,
) -> tuple[Ablation, ...]:
    """Every change for the strongest attack of every configuration that has one."""
    rows = summarise(findings, setup.data)
    floors = [f for f in findings if _is_floor(f.attack)]
    entries: list[Ablation] = []
    for configuration in verdict.configurations:
        chosen = (configuration["attack"], configuration["defense"], configuration["adaptive"])
        row = next((r for r in rows if (r.attack, r.defense, r.adaptive) == chosen), None)
        cell = next((c for c in cells if (c.label, c.defense, c.adaptive) == chosen), None)
        if row is None or cell is None:
            continue  # no attack claimed records here
        for change in changes(setup, cell.attack):
            watch(f"{cell.name}: {change.fact}")
            entries.append(_tried(setup, cell, row, change, floors, rerun))
    return tuple(entries)


def changes(setup: Setup, attack: Attack) -> Iterator[Change]:
    """Each fact of the threat model, and the two that only an oracle knows."""
    told, local = setup.threat_model.facts, setup.scenario.local
    yield Change("input-spec", "told", "", why_not="nothing can be searched without the shape of an input")
    yield _switched(setup, attack, Fact.LABELS, "inferred or searched for")
    if Fact.BATCHNORM_STATISTICS not in told and first_observation(setup).knows(Fact.BATCHNORM_STATISTICS):
        yield Change(Fact.BATCHNORM_STATISTICS.value, "read off the shared averages", "", why_not="they are shared")
    elif any(isinstance(m, _BatchNorm) for m in setup.model.modules()):
        yield _switched(setup, attack, Fact.BATCHNORM_STATISTICS, "not told")
    else:
        yield Change(Fact.BATCHNORM_STATISTICS.value, "not told", "", why_not="the model has no BatchNorm")
    if Fact.PUBLIC_DATA in told and setup.public is not None:
        yield _switched(setup, attack, Fact.PUBLIC_DATA, "none")
    else:
        yield Change(Fact.PUBLIC_DATA.value, "none", "", why_not="there are no public samples to take away")
    if local.kind == "fedavg":
        wrong = dataclasses.replace(local, lr=2 * local.lr)
        yield Change(
            "learning-rate",
            f"{local.lr:g}, as it was",
            f"believed to be {wrong.lr:g}",
            _assuming(setup, Fact.LOCAL_TRAINING, wrong),
        )
    else:
        yield Change("learning-rate", "none", "", why_not="one gradient is shared, and no rate is in it")
    samples = setup.scenario.batch_size
    wrong_size = samples - 1 if samples > 1 else 2
    yield Change(
        Fact.NUM_SAMPLES.value,
        f"{samples}, as it was",
        f"believed to be {wrong_size}",
        _assuming(setup, Fact.NUM_SAMPLES, wrong_size),
    )


def _switched(setup: Setup, attack: Attack, fact: Fact, without: str) -> Change:
    """The fact told if it was not, and kept back if it was."""
    told = setup.threat_model.facts
    knew = fact in told
    audit, instead = ("told", without) if knew else (without, "told")
    if knew and fact in attack.needs:
        return Change(fact.value, audit, instead, why_not=f"{attack.name} does not run without it")
    facts = told - {fact} if knew else told | {fact}
    other = dataclasses.replace(setup.threat_model, facts=frozenset(facts))
    return Change(fact.value, audit, instead, dataclasses.replace(setup, threat_model=other))


def _assuming(setup: Setup, fact: Fact, value: Any) -> Setup:
    return dataclasses.replace(setup, assumed={fact: value})


def _tried(setup: Setup, cell: Cell, row: Summary, change: Change, floors: Sequence[Finding], rerun: Rerun) -> Ablation:
    metric = CRITERION[setup.data.kind][0]
    entry = Ablation(
        defense=cell.defense,
        attack=cell.label,
        adaptive=cell.adaptive,
        fact=change.fact,
        audit=change.audit,
        instead=change.instead,
        recovered=row.success_rate.recovered,
        recovered_instead=None,
        records=row.success_rate.records,
        metric=metric,
        mean=_mean(row, metric),
        mean_instead=None,
        why_not=change.why_not,
    )
    if change.setup is None:
        return entry
    found = rerun(f"{change.fact}: {change.instead}", change.setup, cell)
    again = next(r for r in summarise([*floors, *found], setup.data) if r.attack == cell.label)
    if again.error is not None:
        return dataclasses.replace(entry, why_not=again.error)
    return dataclasses.replace(entry, recovered_instead=again.success_rate.recovered, mean_instead=_mean(again, metric))


def _mean(row: Summary, metric: str) -> float | None:
    found = row.metrics.get(f"{metric}_mean_per_image")
    return None if found is None else found.value


def _is_floor(name: str) -> bool:
    return name in catalog.baselines()
