"""What all defenses that clip tell an attacker, and the noise that comes with clipping.

A client that clips each sample's gradient shares a mean with weights of its own, min(1, C / |g_k|) for sample k. No
common scale undoes that, so the guess's samples are clipped to the same C before they are averaged: the true samples
then cost nothing. A client's update that was clipped as a whole differs by one scale (or one per tensor), which the
distances `scaled` and `scaled-each` leave open; its bound is known as well: distances are measured in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from leakgauge.defenses._noise import against_noise, smooths, weighs
from leakgauge.engine.gradients import trial_gradients
from leakgauge.matching.first_layer import SOLVED, FirstLayer, PeeledLayer
from leakgauge.matching.noise import UPDATE, Noise, noise_in_gradient
from leakgauge.matching.problem import Latent, Likely, Matching
from leakgauge.types import Attack, Defense, Fact, Observation, TamperingServer

SAMPLE, CLIENT = "sample", "client"
WHOLE, LAYER = "whole", "layer"
_CLIPPING_ALONE = "clipping alone"
_TINY = 1e-30
_COPIES = 16  # of a gradient, in the double backward pass


@dataclass(frozen=True)
class Clipping:
    """What each sample's gradient or the update was shortened to, over all tensors or each tensor for itself."""

    norm: float  # largest length that passes
    scope: str  # WHOLE or LAYER
    unit: str  # SAMPLE or CLIENT

    def helps(self, attack: Attack) -> bool:
        """Does `attack` get better by knowing it? A direction does not feel the length of a whole update."""
        if issubclass(attack.kind, (Latent, PeeledLayer)):
            return self.scope == WHOLE
        if issubclass(attack.kind, Matching):
            return self.unit == SAMPLE or self._distance(getattr(attack, "distances", ())) is not None
        return True

    def matching(self, problem: Matching) -> Matching:
        """The problem with each sample of a guess clipped likewise, or with a distance that leaves lengths open."""
        unit = self.length(problem.observation) if isinstance(problem, Likely) else problem.length_unit
        if self.unit == SAMPLE:
            return problem.replace(client_gradient=self.mean, length_unit=unit)
        distance = self._distance(problem.distances)
        return problem if distance is None else problem.replace(distance=distance, length_unit=unit)

    def first_layer(self, problem: FirstLayer) -> FirstLayer:
        """All rows fitted together; tensors that were clipped apart have scales of their own."""
        return problem.replace(combine="least-squares", fit_scale=problem.fit_scale or self.scope == LAYER)

    def length(self, observation: Observation) -> float:
        """What to measure distances in: the bound, as a length of the matched gradient, or 1 if that is shorter."""
        return min(1.0, self.norm * (noise_in_gradient(UPDATE, observation) if self.unit == CLIENT else 1.0))

    def numbers_per_row(self, observation: Observation) -> int:
        """What a search holds more if each sample of its guess has a gradient of its own."""
        if self.unit == CLIENT or self.norm == 0:
            return 0
        samples: int = observation.fact(Fact.NUM_SAMPLES)
        return _COPIES * (samples - 1) * sum(p.numel() for p in observation.model.parameters())

    def mean(
        self,
        model: nn.Module,
        inputs: Tensor,
        targets: Tensor,
        weights: Mapping[str, Tensor] | None = None,
        buffers: Mapping[str, Tensor] | None = None,
    ) -> dict[str, Tensor]:
        """What the client makes of its samples; see `clipped_mean`."""
        return clipped_mean(model, inputs, targets, self, weights, buffers)

    def _distance(self, distances: tuple[str, ...]) -> str | None:
        wanted = ("scaled-each", "cosine-each") if self.scope == LAYER else ("scaled",)
        return next((name for name in wanted if name in distances), None)


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


class KnownClipping(Defense):
    """What a defense that clips, and may add noise to what it clipped, tells an attacker."""

    @property
    def clipping(self) -> Clipping:
        raise NotImplementedError  # abstract

    @property
    def clipped_noise(self) -> Noise | None:
        """The noise that comes with it, if any."""
        return None

    @property
    def idle(self) -> bool:
        return self.clipping.norm == 0

    def numbers_per_row(self, observation: Observation) -> int:
        return self.clipping.numbers_per_row(observation)

    def ways(self, attack: Attack) -> tuple[str, ...]:
        """A search without a likelihood gets more smoothness against noise, which hurts where the noise is small.

        So it is played with the clipping alone, and smoother besides.
        """
        if self.idle or isinstance(attack, TamperingServer) or not self.has_rule_for(type(attack)):
            return ()
        smoothed = self.clipped_noise is not None and smooths(attack)
        if not self.clipping.helps(attack):
            return ("",) if smoothed or (self.clipped_noise is not None and weighs(attack)) else ()
        return (_CLIPPING_ALONE, "smoother") if smoothed else ("",)

    def informs_matching(self, problem: Matching, observation: Observation, way: str) -> Matching:  # noqa: ARG002
        if isinstance(problem, Latent) and problem.imitated is not None:
            return problem.replace(transforms=(problem.imitated("clip"),))
        problem = self.clipping.matching(problem)
        noise = self.clipped_noise
        return problem if noise is None or way == _CLIPPING_ALONE else against_noise(problem, noise)

    def informs_first_layer(self, problem: FirstLayer, observation: Observation, way: str) -> FirstLayer:  # noqa: ARG002
        return self.clipping.first_layer(problem)

    def informs_server(self, server: TamperingServer) -> TamperingServer:
        return server  # whatever it makes large is shortened

    def informs_peeled(self, problem: PeeledLayer, observation: Observation, way: str) -> PeeledLayer:  # noqa: ARG002
        return problem.replace(coefficients=SOLVED)
