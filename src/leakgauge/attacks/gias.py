"""GIAS, gradient inversion in alternative spaces: first a generator's latents, then its weights.

Jeon et al., "Gradient Inversion with Generative Image Prior", NeurIPS 2021. The latents give the picture that the
generator can draw and that fits the update best; then the weights of a copy of the generator, one copy per victim, are
changed in small steps, which leads out of its range to what it could not draw. Cost is 1 - cosine.

Where we depart. The label is read off the last layer and the defense off the update as in `ggl`, total variation is
left out, and all victims run side by side, each with its own weights. As for `ggl` a decoy runs beside it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from leakgauge.attacks._latent_search import Latents, LatentSearch
from leakgauge.attacks.grnn import unpacked
from leakgauge.engine import descent
from leakgauge.engine.driving import Minimum
from leakgauge.generators.generator import Generator
from leakgauge.matching.attempts import best_of, part_of, reported
from leakgauge.matching.problem import Latent, Matching, Start, innermost
from leakgauge.settings import setting
from leakgauge.types import Progress, Reconstruction


@dataclass(frozen=True)
class GIAS(LatentSearch):
    """Latents first, then the generator's weights.

    Example: `leakgauge attack gias --data digits --model lenet-dlg --steps 100 --weight-steps 100 --trials 2`
    """

    name: ClassVar[str] = "gias"
    summary: ClassVar[str] = "search a generator's latents, then its weights, for the picture whose gradient fits"
    paper: ClassVar[str] = "Jeon et al. 2021, Gradient Inversion with Generative Image Prior, NeurIPS"
    tier: ClassVar[str] = "full"
    cost: ClassVar[float] = 10.0

    steps: int = setting(300, "optimiser steps on the latents, per attempt", low=1)
    restarts: int = setting(2, "attempts at the latents; the one with the lowest cost goes on", low=1)
    lr: float = setting(0.1, "step length on the latents", above=0)
    weight_steps: int = setting(500, "optimiser steps on the generator's weights", low=1)
    weight_lr: float = setting(1e-3, "step length on the weights", above=0)
    distance: str = setting("cosine", "how gradients are compared", choices=("cosine", "l2", "l1"))

    def attempt(
        self, problem: Matching, start: Start, seeds: tuple[int, ...], attempts: int, progress: Progress, **_: Any
    ) -> Reconstruction:
        began, clock = time.perf_counter(), time.monotonic()
        budget = float("inf") if self.time_budget is None else self.time_budget
        assert isinstance(problem, Latent)
        painter: Latents = problem.source
        latents = partial(descent.descend, steps=self.steps, lr=self.lr, decay="cosine")

        def minimise(*args: Any, until: float, **limits: Any) -> Minimum:
            return latents(*args, until=min(until, clock + budget / 2), **limits)

        first = best_of(problem, seeds, start, minimise, attempts, part_of(progress, 0, 2))
        if first.interrupted:  # no trial has come to the weights yet
            inputs, labels = reported(problem, first.x)
            spent = first.steps, first.evaluations, time.perf_counter() - began
            return Reconstruction(inputs, labels, first.value, *spent, first.trace, torch.zeros_like(first.finished))
        own = GeneratorWeights(painter.generator, painter.labels, painter.latents(first.x[:, : painter.width]))
        weights = innermost(problem, lambda inside: inside.replace(painter=own))
        second = descent.descend(
            weights.evaluator,
            torch.cat((own.start, first.x[:, painter.width :]), 1),
            steps=self.weight_steps,
            lr=self.weight_lr,
            decay="cosine",
            until=clock + budget,
            progress=part_of(progress, 1, 2),
        )
        inputs, labels = reported(weights, second.x)
        spent = first.steps + second.steps, first.evaluations + second.evaluations, time.perf_counter() - began
        trace, finished = torch.cat((first.trace, second.trace), 1), second.finished if second.interrupted else None
        return Reconstruction(inputs, labels, second.value, *spent, trace, finished)


@dataclass(frozen=True)
class GeneratorWeights:
    """Makes pictures from z = the weights of a trial's own copy of the generator, at latents that stay."""

    generator: Generator
    labels: Tensor  # (T, N)
    latents: Tensor  # (T, N, D)

    @property
    def width(self) -> int:
        return sum(p.numel() for p in self.generator.net.parameters())

    @property
    def start(self) -> Tensor:
        """(T, W): the weights as they are, once per trial."""
        flat = torch.cat([p.detach().flatten() for p in self.generator.net.parameters()])
        return flat.expand(len(self.labels), -1).clone()

    def __call__(self, z: Tensor, trials: Tensor | None) -> tuple[Tensor, None]:
        weights = unpacked(z, {name: tuple(p.shape) for name, p in self.generator.net.named_parameters()})
        latents, labels = (self.latents, self.labels) if trials is None else (self.latents[trials], self.labels[trials])
        return self.generator.own_samples(weights, latents, labels), None
