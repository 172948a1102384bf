"""GIAS, gradient inversion in alternative spaces: first a generator's latents, then its weights.

Jeon et al., "Gradient Inversion with Generative Image Prior", NeurIPS 2021. The latents give the picture that the
generator can draw and that fits the update best; then the weights of a copy of the generator, one copy per victim, are
changed in small steps, which leads out of its range to what it could not draw. Cost is 1 - cosine.

Where we depart. The label is read off the last layer and the defence off the update as in `ggl`, total variation is
left out, and all victims run side by side, each with its own weights. As for `ggl` a decoy runs beside it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.attacks._guessed_defense import TRANSFORMS
from leakgauge.attacks._latent_search import LatentPuzzle, latent_puzzle
from leakgauge.attacks.ggl import starts
from leakgauge.engine import descent
from leakgauge.engine.driving import Minimum
from leakgauge.engine.halving import winners
from leakgauge.matching.attempts import part_of
from leakgauge.settings import setting
from leakgauge.types import Attack, Fact, Observation, Progress, Reconstruction


@dataclass(frozen=True)
class GIAS(Attack):
    """Latents first, then the generator's weights.

    Example: `leakgauge attack gias --data digits --model lenet-dlg --steps 100 --weight-steps 100 --trials 2`
    """

    name: ClassVar[str] = "gias"
    summary: ClassVar[str] = "search a generator's latents, then its weights, for the picture whose gradient fits"
    paper: ClassVar[str] = "Jeon et al. 2021, Gradient Inversion with Generative Image Prior, NeurIPS"
    needs: ClassVar[frozenset[Fact]] = frozenset(
        {Fact.INPUT_SPEC, Fact.NUM_SAMPLES, Fact.LOCAL_TRAINING, Fact.PUBLIC_DATA}
    )
    decoy: ClassVar[bool] = True

    generator: str = setting("public", "a file from train-generator, dcgan-faces, or public: from the public samples")
    steps: int = setting(300, "optimiser steps on the latents, per attempt", low=1)
    weight_steps: int = setting(500, "optimiser steps on the generator's weights", low=1)
    restarts: int = setting(2, "attempts at the latents; the one with the lowest cost goes on", low=1)
    time_budget: float | None = setting(None, "seconds for all victims together; none unless given", above=0)
    lr: float = setting(0.1, "step length on the latents", above=0)
    weight_lr: float = setting(1e-3, "step length on the weights", above=0)
    distance: str = setting("cosine", "how gradients are compared", choices=("cosine", "l2", "l1"))
    transform: str = setting("auto", "the defence that simulated gradients go through", choices=TRANSFORMS)
    reach: float = setting(2.5, "latents stay within plus or minus this; 0 leaves them free", low=0)

    @property
    def rows_per_trial(self) -> int:
        return self.restarts

    def reconstruct(self, observation: Observation, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:
        began, clock = time.perf_counter(), time.monotonic()
        budget = float("inf") if self.time_budget is None else self.time_budget
        puzzle = latent_puzzle(
            observation,
            seeds,
            attack=self.name,
            generator=self.generator,
            distance=self.distance,
            transform=self.transform,
            reach=self.reach,
            kl=0.0,
        )
        first = descent.descend(
            puzzle.problem(self.restarts),
            starts(puzzle, seeds, self.restarts),
            steps=self.steps,
            lr=self.lr,
            decay="cosine",
            attempts=self.restarts,
            until=clock + budget / 2,
            progress=part_of(progress, 0, 2),
        )
        best = winners(first.value, self.restarts)
        latents = puzzle.latents(first.x[best])
        if first.interrupted:  # nobody has come to the weights yet
            return self._claim(puzzle, latents, first, best, None, began)
        second = descent.descend(
            puzzle.weights_problem(latents),
            puzzle.weights(),
            steps=self.weight_steps,
            lr=self.weight_lr,
            decay="cosine",
            until=clock + budget,
            progress=part_of(progress, 1, 2),
        )
        return self._claim(puzzle, latents, first, best, second, began)

    def _claim(
        self, puzzle: LatentPuzzle, latents: Tensor, first: Minimum, best: Tensor, second: Minimum | None, began: float
    ) -> Reconstruction:
        each = torch.arange(len(best), device=best.device)
        steps, evaluations = (getattr(first, n).reshape(-1, self.restarts).sum(1) for n in ("steps", "evaluations"))
        value, trace = first.value[best], first.trace[best]
        weights = puzzle.weights()
        finished: Tensor | None = torch.zeros_like(best, dtype=torch.bool)
        if second is not None:
            steps, evaluations = steps + second.steps, evaluations + second.evaluations
            value, trace, weights = second.value, torch.cat((trace, second.trace), 1), second.x
            finished = second.finished if second.interrupted else None
        with torch.no_grad():
            inputs = puzzle.own_samples(weights, latents, each)
        seconds = time.perf_counter() - began
        return Reconstruction(inputs, puzzle.labels, value, steps, evaluations, seconds, trace, finished)
