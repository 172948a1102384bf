"""An attacker who knows that the samples behind an update belong to several clients, of which it sees the mean."""

from __future__ import annotations

import dataclasses

from leakgauge.client.fedavg import local_steps
from leakgauge.errors import NotApplicable
from leakgauge.matching.problem import Puzzle
from leakgauge.settings import setting
from leakgauge.types import Fact, LocalTraining, Observation


def clients_setting() -> int:
    """The field by which an attack is told how many."""
    field: int = setting(1, "clients with equally many of the samples whose mean update is known to be seen", low=1)
    return field


def with_clients(puzzle: Puzzle, observation: Observation, clients: int) -> Puzzle:
    """The same puzzle with each client's training simulated by itself.

    A weight difference counts the steps of one client. Who has which sample is a guess where they take steps of
    their own: the order in which the samples are searched for.
    """
    if clients == 1:
        return puzzle
    samples = puzzle.shape[0]
    if samples % clients:
        raise NotApplicable(f"clients={clients} needs as many samples of each, not {samples} in all; leave it out")
    observed = puzzle.observed
    if puzzle.unrolled is None and observation.update.kind == "weight_delta":
        local: LocalTraining = observation.fact(Fact.LOCAL_TRAINING)
        factor = local_steps(samples, local) / local_steps(samples // clients, local)
        observed = {name: factor * tensor for name, tensor in observed.items()}
    return dataclasses.replace(puzzle, observed=observed, clients=clients)
