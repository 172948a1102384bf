"""Noise that is known to be in what a client shared, and what it is in the gradient that an attack matches."""

from __future__ import annotations

import math
from dataclasses import dataclass

from leakgauge.client.fedavg import local_steps, mini_batches
from leakgauge.engine.gradients import parameters_of
from leakgauge.types import Client, Fact, Observation

# What it was added to: the update, the sum of the samples' gradients, or that sum with tensors clipped apart.
UPDATE, SUM, JOINT_SUM = ON = ("update", "sum", "joint-sum")


@dataclass(frozen=True)
class Noise:
    """One draw for every entry, by every client in every round."""

    scale: float  # standard deviation, or the scale b of Laplace's distribution where `distance` is "l1"
    on: str
    distance: str  # the likelihood: "l2" or "l1"


def noise_in_gradient(on: str, observation: Observation, clients: int = 1) -> float:
    """By how much noise added to `on` shrinks or grows on its way into the mean gradient that is matched.

    "sum" is drawn anew at each local step and divided by the step's samples; a weight difference averages over steps.
    "joint-sum" is larger by the root of the number of tensors. "update" is divided by rate times steps. Where the mean
    of several clients is seen, it is what one of them has.
    """
    local: Client = observation.fact(Fact.LOCAL_TRAINING)
    samples: int = observation.fact(Fact.NUM_SAMPLES) // clients
    steps = 1 if observation.update.kind == "gradient" else local_steps(samples, local)
    if on == UPDATE:
        return 1.0 if observation.update.kind == "gradient" else 1 / (local.lr * steps)
    parts = [samples] if local.kind == "fedsgd" else [p.stop - p.start for p in mini_batches(samples, local)]
    joint = math.sqrt(len(parameters_of(observation.model))) if on == JOINT_SUM else 1.0
    return joint * math.sqrt(sum(1 / size**2 for size in parts)) / steps
