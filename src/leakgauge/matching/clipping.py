"""What an attacker does who knows that the client clipped: clip the samples of a guess in the same way.

A client that clips each sample's gradient shares a mean with weights of its own, min(1, C / |g_k|) for sample k. No
common scale undoes that, so the guess's samples are clipped to the same C before they are averaged: the true samples
then cost nothing. A client's update that was clipped as a whole differs by one scale (or one per tensor), which the
distances `scaled` and `scaled-each` leave open; its bound is still told, as the length in which distances are measured.
Written as text in an attack's field `clipping`: `norm=0.1/scope=layer/unit=client`.

The noise that comes with clipping is told for the sum of the samples' gradients. `noise_in_gradient` says what that
makes of the mean gradient an attack matches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from leakgauge.client.fedavg import local_steps, mini_batches
from leakgauge.engine.gradients import parameters_of, trial_gradients
from leakgauge.settings import Settings, setting
from leakgauge.types import Fact, LocalTraining, Observation

NONE = "none"
NOISED = ("gradient", "sum", "joint-sum", "update")
_TINY = 1e-30
_COPIES = 16  # of a gradient, in the double backward pass


@dataclass(frozen=True)
class Clipping(Settings):
    """What each sample's gradient or the update was shortened to, over all tensors or each tensor for itself."""

    name: ClassVar[str] = "clipping"
    summary: ClassVar[str] = "clipping by the client"

    norm: float = setting(1.0, "largest length that passes", above=0)
    scope: str = setting("whole", "length over all tensors, or each tensor for itself", choices=("whole", "layer"))
    unit: str = setting(
        "sample", "what was clipped: each sample's gradient, or the update", choices=("sample", "client")
    )

    def length(self, observation: Observation) -> float:
        """What to measure distances in: the bound, as a length of the matched gradient, or 1 if that is shorter."""
        return min(1.0, self.norm * (noise_in_gradient("update", observation) if self.unit == "client" else 1.0))


def clipping_setting() -> str:
    """The field of an attack that can be told."""
    told: str = setting(
        NONE, "how the client clips, as in norm=0.1/scope=layer; each sample of a guess is clipped likewise"
    )
    return told


def noised_setting() -> str:
    """The field that says what the noise an attack is told of was added to."""
    told: str = setting(
        "gradient",
        "what noise_std and tv are told for: the gradient, the sum over samples, the same with tensors "
        "clipped apart, or the update",
        choices=NOISED,
    )
    return told


def clipping_of(text: str) -> Clipping | None:
    """`field=value/...` -> how the client clipped; None for "none"."""
    return None if text == NONE else Clipping.from_text(text.replace("/", ","))


def numbers_for_replay(text: str, observation: Observation) -> int:
    """What a search holds more if each sample of its guess has a gradient of its own, in numbers."""
    clipping = clipping_of(text)
    if clipping is None or clipping.unit == "client":
        return 0
    samples: int = observation.fact(Fact.NUM_SAMPLES)
    return _COPIES * (samples - 1) * sum(p.numel() for p in observation.model.parameters())


def clipped_mean(
    model: nn.Module,
    inputs: Tensor,  # (A, N, *shape)
    targets: Tensor,
    clipping: Clipping,
    weights: Mapping[str, Tensor] | None = None,
    buffers: Mapping[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """The mean over samples of their clipped gradients, (A, *parameter), differentiable as `trial_gradients` is."""
    rows, samples = inputs.shape[:2]
    own = None if weights is None else {n: w.repeat_interleave(samples, 0) for n, w in weights.items()}
    masks = {n: b.repeat_interleave(samples, 0) for n, b in (buffers or {}).items()}
    each = trial_gradients(model, inputs.flatten(0, 1)[:, None], targets.flatten(0, 1)[:, None], own, masks)
    squares = {n: (g * g).flatten(1).sum(1) for n, g in each.items()}
    if clipping.scope == "whole":
        squares = dict.fromkeys(each, torch.stack(list(squares.values())).sum(0))
    factors = {n: (clipping.norm / (s + _TINY).sqrt()).clamp(max=1.0) for n, s in squares.items()}
    short = {n: g * factors[n].view(-1, *[1] * (g.dim() - 1)) for n, g in each.items()}
    return {n: g.reshape(rows, samples, *g.shape[1:]).mean(1) for n, g in short.items()}


def noise_in_gradient(noised: str, observation: Observation, clients: int = 1) -> float:
    """By how much noise told for `noised` shrinks or grows on its way into the mean gradient that is matched.

    "sum" is drawn anew at each local step and divided by the step's samples; a weight difference averages over steps.
    "joint-sum" is larger by the root of the number of tensors. "update" is divided by rate times steps. Where the mean
    of several clients is seen, it is what one of them has.
    """
    if noised == "gradient":
        return 1.0
    local: LocalTraining = observation.fact(Fact.LOCAL_TRAINING)
    samples: int = observation.fact(Fact.NUM_SAMPLES) // clients
    steps = 1 if observation.update.kind == "gradient" else local_steps(samples, local)
    if noised == "update":
        return 1.0 if observation.update.kind == "gradient" else 1 / (local.lr * steps)
    parts = [samples] if local.kind == "fedsgd" else [p.stop - p.start for p in mini_batches(samples, local)]
    joint = math.sqrt(len(parameters_of(observation.model))) if noised == "joint-sum" else 1.0
    return joint * math.sqrt(sum(1 / size**2 for size in parts)) / steps
