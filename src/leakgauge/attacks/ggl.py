"""GGL, generative gradient leakage: search the latents of a generator for the picture behind the update.

Li et al., "Auditing Privacy Defenses in Federated Learning via Generative Gradient Leakage", CVPR 2022. The label is
read off the last layer, the defense off the update (clipping bound, share of zeros, empty columns), and a latent is
sought whose picture, sent through the same defense, gives the observed gradient: the mean over tensors of the squared
distance. The search never leaves what the generator can draw, so a picture may look right and belong to no client:
the same search runs beside it on a decoy.

Where we depart. Theirs needs a GAN trained on ImageNet or faces; here `generator` may be a file from `leakgauge
train-generator`, or made on the spot from the public samples. `optimizer="cma-es"` is theirs; with a white-box model
slopes are there for the taking, so Adam is the default. The bound on latents is reach * tanh(z / reach), reach 1 being
theirs, because ours are N(0, 1). With `reach=0` latents are free and pulled to N(0, 1) by `kl`, their 0.1.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from leakgauge.attacks._latent_search import LatentSearch
from leakgauge.engine import descent
from leakgauge.engine.driving import Minimum, Problem
from leakgauge.engine.randomness import generator
from leakgauge.errors import MissingExtra
from leakgauge.matching.attempts import Minimise
from leakgauge.matching.problem import Latent, Matching
from leakgauge.settings import setting
from leakgauge.types import Observation, Progress

OPTIMIZERS = ("adam", "cma-es")
_FIRST_SPREAD = 0.5


@dataclass(frozen=True)
class GGL(LatentSearch):
    """Latents of a generator, found by their gradient.

    Example: `leakgauge attack ggl --data digits --model lenet-dlg --steps 100 --trials 2`
    """

    name: ClassVar[str] = "ggl"
    summary: ClassVar[str] = "search a generator's latents for the picture whose gradient fits, defense and all"
    paper: ClassVar[str] = "Li et al. 2022, Generative Gradient Leakage, CVPR"
    tier: ClassVar[str] = "standard"
    cost: ClassVar[float] = 9.0
    in_suites: ClassVar[Mapping[str, str | None]] = {"full": "restarts=4"}

    optimizer: str = setting("adam", "how latents are searched: by slope, or by values alone", choices=OPTIMIZERS)
    population: int = setting(50, "candidates in a generation of cma-es", low=4)
    kl: float = setting(0.1, "pull of free latents towards N(0, 1)", low=0)

    @property
    def rows_per_trial(self) -> int:
        return super().rows_per_trial * (self.population if self.optimizer == "cma-es" else 1)

    def problem(self, observation: Observation, seeds: tuple[int, ...]) -> Latent:
        return super().problem(observation, seeds).replace(pull=self._pull if self.kl and not self.reach else None)

    def optimiser(self, problem: Matching, seeds: tuple[int, ...]) -> Minimise:
        if self.optimizer == "adam":
            return partial(descent.descend, steps=self.steps, lr=self.lr, decay="cosine")

        def minimise(_: Problem, start: Tensor, *, attempts: int, **limits: Any) -> Minimum:
            draws = [(seed, f"evolution/{attempt}") for seed in seeds for attempt in range(attempts)]
            limits |= {"generations": self.steps, "population": self.population}
            return evolve(lambda some: problem.values(some // attempts), start, draws, **limits)

        return minimise

    def _pull(self, z: Tensor) -> Tensor:
        """(A,): KL of a normal with the entries' own mean and variance against N(0, 1), weighted."""
        mean, variance = z.mean(1), z.var(1, unbiased=False).clamp_min(1e-12)
        return self.kl * 0.5 * (mean**2 + variance - 1 - variance.log())


def evolve(
    values: Callable[[Tensor], Callable[[Tensor], Tensor]],  # rows (B,) -> (z (B, D) -> (B,))
    start: Tensor,  # (R, D)
    draws: Sequence[tuple[int, str]],  # seed and role of each row's random numbers
    *,
    generations: int,
    population: int,
    until: float = math.inf,
    progress: Progress = lambda _: None,
) -> Minimum:
    """CMA-ES (Hansen and Ostermeier 2001, in the `cma` package) for many rows at once.

    Each row has its own strategy and its own draws; all populations are evaluated together. It needs values only, so a
    second derivative is never taken, and steps in the objective (sorting, counting) are no trouble. Gives each row's
    best point by its own value after `generations`, or when its strategy sees no more to gain.
    """
    try:
        import cma
    except ImportError as error:
        raise MissingExtra("cma-es needs the package cma; run: pip install 'leakgauge[generative]'") from error
    rows, begun = len(start), start.double().cpu().numpy()
    strategies = [_strategy(cma, x, population, *own) for x, own in zip(begun, draws, strict=True)]
    best_x, best = start.clone(), start.new_full((rows,), torch.inf)
    taken = torch.zeros(rows, dtype=torch.long, device=start.device)
    finished = torch.zeros(rows, dtype=torch.bool, device=start.device)
    trace: list[Tensor] = []
    active = list(range(rows))
    interrupted = False
    try:
        for generation in range(generations):
            asked = [strategies[row].ask() for row in active]
            points = torch.from_numpy(np.asarray(asked)).to(start)  # (A, P, D)
            owner = torch.tensor(active, device=start.device).repeat_interleave(population)
            found = values(owner)(points.flatten(0, 1)).view(len(active), population)
            found = torch.where(torch.isfinite(found), found, torch.full_like(found, torch.finfo(found.dtype).max))
            for row, mine, scores in zip(active, asked, found.double().cpu().tolist(), strict=True):
                strategies[row].tell(mine, scores)
            value, which = found.min(1)
            at = owner[::population]
            better = value < best[at]
            best_x[at[better]] = points[better, which[better]]
            best[at[better]] = value[better]
            taken[active] += 1
            trace.append(torch.full_like(best, torch.nan).index_copy(0, at, best[at]))
            active = [row for row in active if not strategies[row].stop()]
            if not active or time.monotonic() >= until:
                break
            progress((generation + 1) / generations)
        finished[:] = True
    except KeyboardInterrupt:
        interrupted = True
        finished[:] = True
        finished[active] = False
    kept = torch.stack(trace, 1) if trace else best[:, None]
    return Minimum(best_x, best, taken, taken * population, kept, finished, interrupted)


def _strategy(cma: ModuleType, start: Any, population: int, seed: int, role: str) -> Any:
    draws = generator(seed, role)

    def randn(*shape: int) -> Any:
        return torch.randn(shape, generator=draws, dtype=torch.float64).numpy()

    options = {"popsize": population, "randn": randn, "verbose": -9, "verb_log": 0, "verb_disp": 0}
    options["seed"] = math.nan  # leave NumPy's own generator alone
    return cma.CMAEvolutionStrategy(start, _FIRST_SPREAD, options)
