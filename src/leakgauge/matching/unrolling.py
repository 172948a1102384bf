"""An attacker who knows that the client went through its local training several times replays it as often."""

from __future__ import annotations

import dataclasses

from leakgauge.client.fedavg import local_steps
from leakgauge.matching.problem import Puzzle
from leakgauge.settings import setting
from leakgauge.types import Fact, LocalTraining, Observation


def repeats_setting() -> int:
    """The field by which an attack is told how often."""
    field: int = setting(1, "times the client is known to have gone through its training before it shared", low=1)
    return field


def repeat_lr_setting() -> float:
    """The field by which an attack is told the rate."""
    field: float = setting(0.01, "rate of the client's steps between gradients, if it shares their mean", above=0)
    return field


def with_repeats(puzzle: Puzzle, observation: Observation, repeats: int, lr: float) -> Puzzle:
    """The same puzzle with all steps replayed; both sides are mean gradients along the client's path."""
    if repeats == 1:
        return puzzle
    local: LocalTraining = observation.fact(Fact.LOCAL_TRAINING)
    if local.kind == "fedsgd":
        training = dataclasses.replace(local, kind="fedavg", epochs=repeats, lr=lr)
    else:
        training = dataclasses.replace(local, epochs=repeats * local.epochs)
    scale = 1.0
    if observation.update.kind == "weight_delta":
        scale = -1.0 / (training.lr * local_steps(puzzle.shape[0] // puzzle.clients, training))
    shared = observation.update.tensors
    observed = {name: shared[name] * scale for name in puzzle.observed}
    return dataclasses.replace(puzzle, observed=observed, unrolled=training, mean_of_steps=True)
