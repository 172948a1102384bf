"""GGL, generative gradient leakage: search the latents of a generator for the picture behind the update.

Li et al., "Auditing Privacy Defenses in Federated Learning via Generative Gradient Leakage", CVPR 2022. The label is
read off the last layer, the defense off the update (clipping bound, share of zeros, empty columns), and a latent is
sought whose picture, sent through the same defense, gives the observed gradient: the mean over tensors of the squared
distance. The search never leaves what the generator can draw, so a picture may look right and be nobody's: beside it
runs the same search on a decoy.

Where we depart. Theirs needs a GAN trained on ImageNet or faces; here `generator` may be a file from `leakgauge
train-generator`, or made on the spot from the public samples. `optimizer="cma-es"` is theirs; with a white-box model
slopes are there for the taking, so Adam is the default. The bound on latents is reach * tanh(z / reach), reach 1 being
theirs, because ours are N(0, 1). With `reach=0` latents are free and pulled to N(0, 1) by `kl`, their 0.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from leakgauge.attacks._guessed_defense import TRANSFORMS
from leakgauge.attacks._latent_search import latent_problem, start_of
from leakgauge.engine import descent
from leakgauge.engine.driving import Minimum, Problem
from leakgauge.matching.attempts import Minimise, Start, attempts_for, solve
from leakgauge.matching.evolution import evolve
from leakgauge.matching.input_search import all_attempts
from leakgauge.matching.problem import Latent, Matching
from leakgauge.settings import setting
from leakgauge.types import Attack, Fact, Observation, Progress, Reconstruction

OPTIMIZERS = ("adam", "cma-es")


@dataclass(frozen=True)
class GGL(Attack):
    """Latents of a generator, found by their gradient.

    Example: `leakgauge attack ggl --data digits --model lenet-dlg --steps 100 --trials 2`
    """

    name: ClassVar[str] = "ggl"
    summary: ClassVar[str] = "search a generator's latents for the picture whose gradient fits, defense and all"
    paper: ClassVar[str] = "Li et al. 2022, Generative Gradient Leakage, CVPR"
    tier: ClassVar[str] = "standard"
    cost: ClassVar[float] = 9.0
    in_suites: ClassVar[Mapping[str, str | None]] = {"full": "restarts=4"}
    kind: ClassVar[type] = Latent
    needs: ClassVar[frozenset[Fact]] = frozenset(
        {Fact.INPUT_SPEC, Fact.NUM_SAMPLES, Fact.LOCAL_TRAINING, Fact.PUBLIC_DATA}
    )
    decoy: ClassVar[bool] = True

    generator: str = setting("public", "a file from train-generator, dcgan-faces, or public: from the public samples")
    steps: int = setting(500, "optimiser steps, or generations of cma-es, per attempt", low=1)
    restarts: int = setting(2, "attempts; the one with the lowest cost is kept", low=1)
    time_budget: float | None = setting(None, "seconds for all victims together; none unless given", above=0)
    optimizer: str = setting("adam", "how latents are searched: by slope, or by values alone", choices=OPTIMIZERS)
    lr: float = setting(0.1, "step length of adam", above=0)
    population: int = setting(50, "candidates in a generation of cma-es", low=4)
    distance: str = setting("l2", "how gradients are compared", choices=("l2", "l1", "cosine"))
    transform: str = setting("auto", "the defense that simulated gradients go through", choices=TRANSFORMS)
    reach: float = setting(2.5, "latents stay within plus or minus this; 0 leaves them free", low=0)
    kl: float = setting(0.1, "pull of free latents towards N(0, 1)", low=0)

    @property
    def rows_per_trial(self) -> int:
        return self.restarts * (self.population if self.optimizer == "cma-es" else 1)

    def problem(self, observation: Observation, seeds: tuple[int, ...]) -> Latent:
        return latent_problem(
            observation,
            seeds,
            attack=self.name,
            generator=self.generator,
            distance=self.distance,
            transform=self.transform,
            reach=self.reach,
            pull=self._pull if self.kl and not self.reach else None,
        )

    def solve(self, problem: Latent, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:
        attempts, schedule = attempts_for(problem, self.restarts, "halving")

        def search(problem: Matching, start: Start, progress: Progress) -> Reconstruction:
            return solve(
                problem,
                seeds,
                start=start,
                minimise=self._minimise(problem, seeds),
                attempts=attempts,
                schedule=schedule,
                settled=all_attempts,
                time_budget=self.time_budget,
                progress=progress,
            )

        return problem.searched(search, start_of(problem), seeds, progress)

    def _minimise(self, problem: Matching, seeds: Sequence[int]) -> Minimise:
        def minimise(rows: Problem, start: Tensor, *, attempts: int, until: float, progress: Progress) -> Minimum:
            if self.optimizer == "cma-es":
                draws = [(seed, f"evolution/{attempt}") for seed in seeds for attempt in range(attempts)]
                return evolve(
                    lambda some: problem.values(some // attempts),
                    start,
                    draws,
                    generations=self.steps,
                    population=self.population,
                    until=until,
                    progress=progress,
                )
            return descent.descend(
                rows,
                start,
                steps=self.steps,
                lr=self.lr,
                decay="cosine",
                attempts=attempts,
                until=until,
                progress=progress,
            )

        return minimise

    def _pull(self, z: Tensor) -> Tensor:
        """(A,): KL of a normal with the entries' own mean and variance against N(0, 1), weighted."""
        mean, variance = z.mean(1), z.var(1, unbiased=False).clamp_min(1e-12)
        return self.kl * 0.5 * (mean**2 + variance - 1 - variance.log())
