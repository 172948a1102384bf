"""GGL, generative gradient leakage: search the latents of a generator for the picture behind the update.

Li et al., "Auditing Privacy Defenses in Federated Learning via Generative Gradient Leakage", CVPR 2022. The label is
read off the last layer, the defence off the update (clipping bound, share of zeros, empty columns), and a latent is
sought whose picture, sent through the same defence, gives the observed gradient: the mean over tensors of the squared
distance. The search never leaves what the generator can draw, so a picture may look right and be nobody's: beside it
runs the same search on a decoy.

Where we depart. Theirs needs a GAN trained on ImageNet or faces; here `generator` may be a file from `leakgauge
train-generator`, or made on the spot from the public samples. `optimizer="cma-es"` is theirs; with a white-box model
slopes are there for the taking, so Adam is the default. The bound on latents is reach * tanh(z / reach), reach 1 being
theirs, because ours are N(0, 1). With `reach=0` latents are free and pulled to N(0, 1) by `kl`, their 0.1.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.attacks._guessed_defense import TRANSFORMS
from leakgauge.attacks._latent_search import LatentPuzzle, latent_puzzle
from leakgauge.engine import descent
from leakgauge.engine.driving import Minimum
from leakgauge.engine.halving import winners
from leakgauge.engine.randomness import normal
from leakgauge.matching.evolution import evolve
from leakgauge.settings import setting
from leakgauge.types import Attack, Fact, Observation, Progress, Reconstruction

OPTIMIZERS = ("adam", "cma-es")


@dataclass(frozen=True)
class GGL(Attack):
    """Latents of a generator, found by their gradient.

    Example: `leakgauge attack ggl --data digits --model lenet-dlg --steps 100 --trials 2`
    """

    name: ClassVar[str] = "ggl"
    summary: ClassVar[str] = "search a generator's latents for the picture whose gradient fits, defence and all"
    paper: ClassVar[str] = "Li et al. 2022, Generative Gradient Leakage, CVPR"
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
    transform: str = setting("auto", "the defence that simulated gradients go through", choices=TRANSFORMS)
    reach: float = setting(2.5, "latents stay within plus or minus this; 0 leaves them free", low=0)
    kl: float = setting(0.1, "pull of free latents towards N(0, 1)", low=0)

    @property
    def rows_per_trial(self) -> int:
        return self.restarts * (self.population if self.optimizer == "cma-es" else 1)

    def reconstruct(self, observation: Observation, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:
        began = time.perf_counter()
        until = float("inf") if self.time_budget is None else time.monotonic() + self.time_budget
        puzzle = latent_puzzle(
            observation,
            seeds,
            attack=self.name,
            generator=self.generator,
            distance=self.distance,
            transform=self.transform,
            reach=self.reach,
            kl=0.0 if self.reach else self.kl,
        )
        found = self._search(puzzle, seeds, until, progress)
        best = winners(found.value, self.restarts)
        each = torch.arange(len(seeds), device=best.device)
        with torch.no_grad():
            inputs = puzzle.samples(found.x[best], each)
        spent = {n: getattr(found, n).reshape(-1, self.restarts) for n in ("steps", "evaluations", "finished")}
        return Reconstruction(
            inputs,
            puzzle.labels,
            found.value[best],
            spent["steps"].sum(1),
            spent["evaluations"].sum(1),
            time.perf_counter() - began,
            found.trace[best],
            spent["finished"].all(1) if found.interrupted else None,
        )

    def _search(self, puzzle: LatentPuzzle, seeds: Sequence[int], until: float, progress: Progress) -> Minimum:
        start = starts(puzzle, seeds, self.restarts)
        if self.optimizer == "cma-es":
            draws = [(seed, f"evolution/{attempt}") for seed in seeds for attempt in range(self.restarts)]
            return evolve(
                lambda rows: puzzle.values(rows // self.restarts),
                start,
                draws,
                generations=self.steps,
                population=self.population,
                until=until,
                progress=progress,
            )
        return descent.descend(
            puzzle.problem(self.restarts),
            start,
            steps=self.steps,
            lr=self.lr,
            decay="cosine",
            attempts=self.restarts,
            until=until,
            progress=progress,
        )


def starts(puzzle: LatentPuzzle, seeds: Sequence[int], attempts: int) -> Tensor:
    """(T x attempts, D): the middle of the latents first, then N(0, 1)."""
    drawn = [normal(seeds, f"start/{attempt}", (puzzle.width,)) for attempt in range(attempts)]
    drawn[0] = 0.1 * drawn[0]  # not quite the middle: a spread of zero has no KL
    return torch.stack(drawn, 1).flatten(0, 1).to(puzzle.like)
