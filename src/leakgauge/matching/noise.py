"""Noise that is known to be in what a client shared, and what it is in the gradient that an attack matches."""

from __future__ import annotations

import math
from dataclasses import dataclass

from leakgauge.client.gradient_behind import gradient_scale, step_scales
from leakgauge.engine.gradients import parameters_of
from leakgauge.engine.optimizers import local_plan
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
    "joint-sum" is larger by the root of the number of tensors. "update" is divided by how far the optimiser goes for a
    unit of gradient. Where the mean of several clients is seen, it is what one of them has. Refused of optimisers that
    divide by sizes.
    """
    local: Client = observation.fact(Fact.LOCAL_TRAINING)
    samples: int = observation.fact(Fact.NUM_SAMPLES) // clients
    moved = observation.update.kind != "gradient"
    if on == UPDATE:
        return -1 / gradient_scale(local, samples) if moved else 1.0
    joint = math.sqrt(len(parameters_of(observation.model))) if on == JOINT_SUM else 1.0
    if local.kind == "fedsgd" or not moved:
        return joint / samples
    variance = 0.0  # of the sum of all steps
    for step, scale in zip(local_plan(samples, local), step_scales(local, samples), strict=True):
        own = scale / len(step.parts)  # for a unit of each mini-batch's gradient
        variance += sum((own / (part.stop - part.start)) ** 2 for part in step.parts)
    return -joint * math.sqrt(variance) / gradient_scale(local, samples)
