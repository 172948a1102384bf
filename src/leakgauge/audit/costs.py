"""What the configurations of an audit cost: each trained as a federation, in lock step with the undefended one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from leakgauge.audit.federated_training import Trained, train_federation
from leakgauge.errors import NotApplicable
from leakgauge.setup.plan import configurations
from leakgauge.types import UNDEFENDED, AuditReport, Cost, Costs, Federation, Interval, Partition, Scenario

CLIENTS = 20  # where the scenario spreads its data over nobody


def with_costs(
    report: AuditReport,
    federation: Federation,
    *,
    device: str = "auto",
    data_root: Path | None = None,
    watch: Callable[[int, int, str], None] = lambda *_: None,
) -> AuditReport:
    """The report with a cost for each of its configurations; one that cannot train says why."""
    scenario = trainable(report.scenario)
    refused: dict[str, str] = {}
    chains = [c for c in configurations(scenario) if c != UNDEFENDED]
    while True:
        asked = dataclasses.replace(scenario, defenses=tuple(c for c in chains if c not in refused))
        try:
            trained = train_federation(asked, federation, device=device, data_root=data_root, watch=watch)
            break
        except NotApplicable as error:
            refused[_culprit(asked, federation, device, data_root)] = str(error)
    rows = {t.defense: _cost(t) for t in trained.trained}
    rows |= {name: Cost(name, None, Interval(None, None, None), 0, why) for name, why in refused.items()}
    setting = f"{federation.rounds} rounds, {federation.per_round} of {trained.clients} clients in each"
    return dataclasses.replace(report, costs=Costs(tuple(rows[c] for c in (UNDEFENDED, *chains)), setting))


def trainable(scenario: Scenario) -> Scenario:
    """The same with its data spread over clients, evenly if the scenario says nothing."""
    if scenario.partition.kind != "none":
        return scenario
    return dataclasses.replace(scenario, partition=Partition(kind="iid", clients=CLIENTS))


def _culprit(scenario: Scenario, federation: Federation, device: str, data_root: Path | None) -> str:
    """The first configuration that cannot take a single round."""
    short = dataclasses.replace(federation, rounds=1)
    for chain in scenario.defenses:
        try:
            alone = dataclasses.replace(scenario, defenses=(chain,))
            train_federation(alone, short, baseline=False, device=device, data_root=data_root)
        except NotApplicable:
            return chain
    raise NotApplicable("the undefended federation cannot train on this model")


def _cost(trained: Trained) -> Cost:
    return Cost(trained.defense, trained.accuracy, trained.round_seconds, trained.bytes_up)
