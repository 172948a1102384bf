"""GIAS, gradient inversion in alternative spaces: first a generator's latents, then its weights.

Jeon et al., "Gradient Inversion with Generative Image Prior", NeurIPS 2021. The latents give the picture that the
generator can draw and that fits the update best; then the weights of a copy of the generator, one copy per victim, are
changed in small steps, which leads out of its range to what it could not draw. Cost is 1 - cosine.

Where we depart. The label is read off the last layer and the defense off the update as in `ggl`, total variation is
left out, and all victims run side by side, each with its own weights. As for `ggl` a decoy runs beside it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.attacks._guessed_defense import TRANSFORMS
from leakgauge.attacks._latent_search import GeneratorWeights, Latents, latent_problem, start_of
from leakgauge.engine import descent
from leakgauge.engine.driving import Minimum, Problem
from leakgauge.matching.attempts import Start, attempts_for, best_of, part_of, reported
from leakgauge.matching.problem import Latent, Matching, innermost
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
    tier: ClassVar[str] = "full"
    cost: ClassVar[float] = 10.0
    kind: ClassVar[type] = Latent
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
    transform: str = setting("auto", "the defense that simulated gradients go through", choices=TRANSFORMS)
    reach: float = setting(2.5, "latents stay within plus or minus this; 0 leaves them free", low=0)

    @property
    def rows_per_trial(self) -> int:
        return self.restarts

    def problem(self, observation: Observation, seeds: tuple[int, ...]) -> Latent:
        """That of the latents; `solve` goes on with the weights."""
        return latent_problem(
            observation,
            seeds,
            attack=self.name,
            generator=self.generator,
            distance=self.distance,
            transform=self.transform,
            reach=self.reach,
        )

    def solve(self, problem: Latent, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:
        attempts, _ = attempts_for(problem, self.restarts, "halving")

        def search(problem: Matching, start: Start, progress: Progress) -> Reconstruction:
            return self._search(problem, start, seeds, attempts, progress)

        return problem.searched(search, start_of(problem), seeds, progress)

    def _search(
        self, problem: Matching, start: Start, seeds: Sequence[int], attempts: int, progress: Progress
    ) -> Reconstruction:
        began, clock = time.perf_counter(), time.monotonic()
        budget = float("inf") if self.time_budget is None else self.time_budget
        assert isinstance(problem, Latent)
        painter: Latents = problem.source

        def minimise(rows: Problem, start: Tensor, *, attempts: int, until: float, progress: Progress) -> Minimum:
            return descent.descend(
                rows,
                start,
                steps=self.steps,
                lr=self.lr,
                decay="cosine",
                attempts=attempts,
                until=min(until, clock + budget / 2),
                progress=progress,
            )

        first = best_of(problem, seeds, start, minimise, attempts, part_of(progress, 0, 2))
        if first.interrupted:  # nobody has come to the weights yet
            return self._claim(problem, first, None, began)
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
        return self._claim(weights, first, second, began)

    @staticmethod
    def _claim(problem: Matching, first: Minimum, second: Minimum | None, began: float) -> Reconstruction:
        last = first if second is None else second
        inputs, labels = reported(problem, last.x)
        steps, evaluations, trace = first.steps, first.evaluations, first.trace
        finished: Tensor | None = torch.zeros_like(first.finished)
        if second is not None:
            steps, evaluations = steps + second.steps, evaluations + second.evaluations
            trace = torch.cat((trace, second.trace), 1)
            finished = second.finished if second.interrupted else None
        seconds = time.perf_counter() - began
        return Reconstruction(inputs, labels, last.value, steps, evaluations, seconds, trace, finished)
