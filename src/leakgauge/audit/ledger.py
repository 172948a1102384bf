"""The assumption ledger: what each fact that the attacker was given was worth, one fact changed at a time.

The strongest attack of every configuration is run once more per fact, on the same victims and seeds: with the labels
where it inferred them and the other way round, with BatchNorm statistics, without public samples, with a batch size
wrong by one; and of a client that takes local steps with a learning rate wrong by a factor of two, with another
optimiser, momentum, number of epochs or order of samples. What cannot be changed is listed with the reason. One change
at a time says nothing of two together, and another attack may miss a fact less.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch.nn.modules.batchnorm import _BatchNorm

from leakgauge.client.fedavg import local_steps
from leakgauge.metrics.criterion import criterion_of
from leakgauge.recording.triage import first_observation
from leakgauge.setup.plan import Cell
from leakgauge.setup.setup import Setup
from leakgauge.types import Ablation, Attack, Client, Fact, Finding, Summary, Verdict, cell_name
from leakgauge.verdict.roles import cell_of, floors_in
from leakgauge.verdict.summary import summarise

_MOMENTUM = 0.9  # that is assumed of a client without
CHANGEABLE = ("threat_model", "assumed")  # fields of a setup that a change may give another value
Rerun = Callable[[str, Setup, Cell], Sequence[Finding]]  # what is changed, the setup with it, the cell


@dataclass(frozen=True)
class Change:
    """One fact as it was and as it is tried; without a setup it cannot be changed."""

    fact: str
    audit: str
    instead: str = ""
    setup: Setup | None = None
    why_not: str = ""


def ledger(
    setup: Setup, cells: Sequence[Cell], findings: Sequence[Finding], verdict: Verdict, rerun: Rerun
) -> tuple[Ablation, ...]:
    """Every change for the strongest attack of every configuration that has one."""
    rows = {cell_of(row): row for row in summarise(findings, setup.data)}
    by_name = {c.name: c for c in reversed(cells)}
    floors, entries = floors_in(findings), []
    for c in verdict.configurations:
        name = cell_name(c.attack or "", c.defense, c.adaptive)
        if name in rows and name in by_name:  # else no attack claimed records here
            for change in changes(setup, by_name[name].attack):
                entries.append(_tried(setup, by_name[name], rows[name], change, floors, rerun))
    return tuple(entries)


def changes(setup: Setup, attack: Attack) -> Iterator[Change]:
    """Each fact of the threat model, and the two that only an oracle knows."""
    given, local, statistics = setup.threat_model.facts, setup.scenario.local, Fact.BATCHNORM_STATISTICS
    yield Change("input-spec", "given", why_not="nothing can be searched without the shape of an input")
    yield _switched(setup, attack, Fact.LABELS, "inferred or searched for")
    if statistics not in given and first_observation(setup).knows(statistics):
        yield Change(statistics.value, "read off the shared averages", why_not="they are shared")
    elif any(isinstance(m, _BatchNorm) for m in setup.model.modules()):
        yield _switched(setup, attack, statistics, "not given")
    else:
        yield Change(statistics.value, "not given", why_not="the model has no BatchNorm")
    if Fact.PUBLIC_DATA in given and setup.public is not None:
        yield _switched(setup, attack, Fact.PUBLIC_DATA, "none")
    else:
        yield Change(Fact.PUBLIC_DATA.value, "none", why_not="there are no public samples to take away")
    samples = setup.scenario.batch_size
    if local.kind == "fedavg":
        yield from _of_the_client(setup, local, samples)
    else:
        yield Change("learning-rate", "none", why_not="one gradient is shared, and no rate is in it")
    size = samples - 1 if samples > 1 else 2
    yield _assumed(setup, Fact.NUM_SAMPLES, size, Fact.NUM_SAMPLES.value, f"{samples}", f"{size}")


def _of_the_client(setup: Setup, local: Client, samples: int) -> Iterator[Change]:
    """What the attacker knows of the client's training, each setting taken wrongly."""
    steps, parts = local_steps(samples, local), 0 < local.batch_size < samples
    assumed = partial(_assumed, setup, Fact.LOCAL_TRAINING)
    rate = dataclasses.replace(local, lr=2 * local.lr)
    yield assumed(rate, "learning-rate", f"{local.lr:g}", f"{rate.lr:g}")
    plain = dataclasses.replace(local, momentum=0.0, dampening=0.0, nesterov=False)
    other = dataclasses.replace(plain, optimizer="sgd" if local.adaptive else "adam")
    yield assumed(other, "optimizer", local.optimizer, other.optimizer)
    if local.optimizer not in ("sgd", "rmsprop"):
        yield Change("momentum", "none", why_not=f"{local.optimizer} has none")
    elif steps == 1:
        yield Change("momentum", f"{local.momentum:g}", why_not="it does not act in a single step")
    else:
        momentum = plain if local.momentum else dataclasses.replace(local, momentum=_MOMENTUM)
        yield assumed(momentum, "momentum", f"{local.momentum:g}", f"{momentum.momentum:g}")
    epochs = dataclasses.replace(local, epochs=local.epochs + 1)
    yield assumed(epochs, "epochs", f"{local.epochs}", f"{epochs.epochs}")
    if not parts or local.epochs == 1:
        why = "a sample has no place in it" if not parts else "one epoch visits each sample once, in whatever order"
        yield Change("order", local.order, why_not=why)
    else:
        order = dataclasses.replace(local, order="given" if local.order == "shuffled" else "shuffled")
        yield assumed(order, "order", local.order, order.order)


def _assumed(setup: Setup, fact: Fact, value: Any, name: str, was: str, wrong: str) -> Change:
    """The attacker takes a wrong value for the fact."""
    changed = dataclasses.replace(setup, assumed={fact: value})
    return Change(name, f"{was}, as it was", f"assumed to be {wrong}", changed)


def _switched(setup: Setup, attack: Attack, fact: Fact, without: str) -> Change:
    """The fact given if it was not, and kept back if it was."""
    facts = setup.threat_model.facts
    audit, instead = ("given", without) if fact in facts else (without, "given")
    if fact in facts & attack.needs:
        return Change(fact.value, audit, instead, why_not=f"{attack.name} does not run without it")
    other = dataclasses.replace(setup.threat_model, facts=facts ^ {fact})
    return Change(fact.value, audit, instead, dataclasses.replace(setup, threat_model=other))


def _tried(setup: Setup, cell: Cell, row: Summary, change: Change, floors: Sequence[Finding], rerun: Rerun) -> Ablation:
    metric = criterion_of(setup.data).metric
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
