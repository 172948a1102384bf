"""GradInversion: match the gradient with priors on pictures, on BatchNorm statistics and on what several seeds agree.

Yin et al., "See through Gradients: Image Batch Recovery via GradInversion", CVPR 2021. The gradients' squared distance
is joined by total variation, the norm, the distance of BatchNorm statistics and the distance to a consensus of several
seeds that run side by side; Adam steps with a warm-up and a cosine, with Langevin noise, pixels kept in range. Labels
are read off the last layer first, as in the paper for batches of distinct labels.

Where we depart. The paper is told the BatchNorm statistics of the private batch; here they are used only if the threat
model reveals them ("+batchnorm"), else, with less weight, the averages that the model carries, or none if it never saw
a batch. The consensus is the mean after a shift by whole pixels (phase correlation) instead of RANSAC-flow. Every term
is relative, to the observed gradient's norm, to a layer's statistics or to the number of pixels, so that one set of
weights serves all networks; the paper's belong to sums in one network. The image's gradient is flattened softly before
Adam sees it (`soft_sign=false` is theirs), and the noise is that of the breaching library, whose author found the
paper's 0.2 too large. Several local steps are matched by their mean gradient. The seed with the lowest objective,
consensus left out, is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from leakgauge.engine.driving import Budget, Evaluate, Minimum, Problem, drive
from leakgauge.engine.gradients import runs_one_by_one
from leakgauge.engine.randomness import normal
from leakgauge.matching.attempts import Minimise, Start, attempts_for, solve
from leakgauge.matching.batchnorm_statistics import Statistics, batch_statistics, running_statistics, statistics_gap
from leakgauge.matching.group_descent import GroupDescent
from leakgauge.matching.labels import inferred_labels
from leakgauge.matching.priors import mean_variation
from leakgauge.matching.problem import Matching, in_units_of_data, matching_of
from leakgauge.matching.registration import CONSENSUS, consensus
from leakgauge.settings import setting
from leakgauge.types import Attack, Fact, LocalTraining, Observation, Progress, Reconstruction

_NOTHING = 1e-12  # squared norm of an update that holds nothing to match


@dataclass(frozen=True)
class GradInversion(Attack):
    """Gradient matching with BatchNorm statistics and group consistency.

    Example: `leakgauge attack gradinversion --data photos32 --model resnet20 --steps 500 --trials 2`
    """

    name: ClassVar[str] = "gradinversion"
    summary: ClassVar[str] = "match gradient and BatchNorm statistics from several seeds that must agree"
    paper: ClassVar[str] = "Yin et al. 2021, See through Gradients (GradInversion), CVPR"
    tier: ClassVar[str] = "standard"
    cost: ClassVar[float] = 7.0
    in_suites: ClassVar[Mapping[str, str | None]] = {"standard": "steps=5000,restarts=2"}
    kind: ClassVar[type] = Matching
    needs: ClassVar[frozenset[Fact]] = frozenset({Fact.INPUT_SPEC, Fact.NUM_SAMPLES, Fact.LOCAL_TRAINING})

    steps: int = setting(20_000, "optimiser steps", low=1)
    restarts: int = setting(4, "seeds that run side by side; the one with the lowest objective is kept", low=1)
    time_budget: float | None = setting(None, "seconds for all victims together; none unless given", above=0)
    lr: float = setting(0.1, "largest step length in standard deviations of the data", above=0)
    warm_up: int = setting(50, "steps over which the step length rises", low=0)
    gradient: float = setting(1.0, "weight of the squared distance of gradients, relative to the observed", above=0)
    tv: float = setting(1e-3, "weight of total variation", low=0)
    l2: float = setting(1e-6, "weight of the mean square of the inputs", low=0)
    batchnorm: float = setting(
        0.1, "weight of the relative distance to the batch's BatchNorm statistics, if told", low=0
    )
    averages: float = setting(0.01, "the same to the model's averages, which stand in if they are not told", low=0)
    group: float = setting(0.01, "weight of the mean square distance to what the seeds agree on", low=0)
    agreement: str = setting("registered", "what they agree on: a mean, with pictures moved onto it", choices=CONSENSUS)
    soft_sign: bool = setting(True, "flatten the image's gradient softly before each step, as inverting-gradients does")
    noise: float = setting(0.01, "standard deviation of Langevin noise, in step lengths", low=0)
    boxed: bool = setting(True, "keep pixels in their range")

    @property
    def rows_per_trial(self) -> int:
        return self.restarts

    def problem(self, observation: Observation, seeds: tuple[int, ...]) -> Matching:  # noqa: ARG002
        """Inputs in standard deviations of the data; the priors are added by `_grouped`."""
        like = next(iter(observation.update.tensors.values()))
        centre, unit = in_units_of_data(observation, like)
        return matching_of(
            observation,
            observation.fact(Fact.LABELS) if observation.knows(Fact.LABELS) else inferred_labels(observation, "yin"),
            distance="l2",
            prior=lambda _, inputs, __: inputs.new_zeros(len(inputs)),
            variation=self.tv,
            centre=centre,
            unit=unit,
        )

    def solve(self, problem: Matching, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:
        attempts, _ = attempts_for(problem, self.restarts, "halving")

        def start(some: Sequence[int], attempt: int) -> Tensor:
            return normal(some, f"start/{attempt}", (problem.width,)).to(problem.like)

        def search(problem: Matching, start: Start, progress: Progress) -> Reconstruction:
            return solve(
                problem,
                seeds,
                start=start,
                minimise=self._minimise(problem, seeds, attempts),
                attempts=attempts,
                schedule="halving",
                settled=lambda value, _: torch.zeros_like(value, dtype=torch.bool),
                time_budget=self.time_budget,
                progress=progress,
            )

        return problem.searched(search, start, seeds, progress)

    def _minimise(self, problem: Matching, seeds: tuple[int, ...], attempts: int) -> Minimise:
        grouped = self._grouped(problem, attempts)

        def agree(z: Tensor, trials: Tensor) -> Tensor:
            """On the inputs; whatever else is searched for stays each seed's own."""
            inputs, rest = z[:, : problem.pixels], z[:, problem.pixels :]
            agreed = consensus(inputs.reshape(-1, *problem.shape), trials, self.agreement)
            return torch.cat((agreed.flatten(1), rest), 1)

        method = GroupDescent(
            steps=self.steps,
            lr=self.lr,
            warm_up=self.warm_up,
            noise=self.noise,
            pull=self.group if attempts > 1 else 0.0,
            soft_sign=self.soft_sign,
            project=problem.boxed if self.boxed else lambda z: z,
            agree=agree,
            seeds=seeds,
            attempts=attempts,
        )

        def minimise(rows: Problem, start: Tensor, *, attempts: int, until: float, progress: Progress) -> Minimum:
            del rows, attempts  # ours knows whose statistics count; no seed is given up, the consensus needs all
            return drive(method, grouped, start, Budget(self.steps, until=until, progress=progress))

        return minimise

    def _grouped(self, problem: Matching, attempts: int) -> Problem:
        """Rows are trials x seeds. Each trial's rows are held to that trial's own BatchNorm statistics."""
        observation = problem.observation
        wanted, strength = self._statistics(observation)
        local: LocalTraining = observation.fact(Fact.LOCAL_TRAINING)
        weight = self.gradient / _size(problem).clamp_min(_NOTHING)  # (T,)

        def evaluator(trials: Tensor) -> Evaluate:
            own = {n: (m[trials], v[trials]) if m.dim() == 2 else (m, v) for n, (m, v) in wanted.items()}
            factor = weight[trials]

            def like_the_batch(model: nn.Module, inputs: Tensor) -> Tensor:
                if not own:
                    return inputs.new_zeros(len(inputs))
                return strength * statistics_gap(batch_statistics(model, inputs, local.batchnorm == "eval"), own)

            def prior(guess: Matching, inputs: Tensor, _: Tensor) -> Tensor:
                # The whole is multiplied by the factor below, so what is relative already is divided by it.
                return (self._picture_prior(guess, inputs) + like_the_batch(guess.model, inputs)) / factor

            evaluate = problem.replace(prior=prior).evaluator(trials)

            def weighted(z: Tensor) -> tuple[Tensor, Tensor]:
                value, slope = evaluate(z)
                return factor * value, factor[:, None] * slope

            return weighted

        def rows_of_trials(rows: Tensor) -> Evaluate:
            trials = rows // attempts
            if not runs_one_by_one(problem.model):
                return evaluator(trials)
            return _in_turn([evaluator(trial[None]) for trial in trials])

        return rows_of_trials

    def _statistics(self, observation: Observation) -> tuple[Statistics, float]:
        """What to resemble and how much that counts: (T, C) each where revealed, else (C,) of the model's averages."""
        if observation.knows(Fact.BATCHNORM_STATISTICS):
            return (observation.fact(Fact.BATCHNORM_STATISTICS) if self.batchnorm else {}), self.batchnorm
        return (running_statistics(observation.model) if self.averages else {}), self.averages

    def _picture_prior(self, problem: Matching, inputs: Tensor) -> Tensor:
        """(A,): total variation and norm, in standard deviations of the data."""
        assert problem.centre is not None
        assert problem.unit is not None
        scaled = (inputs - problem.centre) / problem.unit
        assert problem.variation is not None
        return problem.variation * mean_variation(scaled) + self.l2 * (scaled**2).flatten(1).mean(1)


def _size(problem: Matching) -> Tensor:
    """(T,): the squared length of what is compared, which a compression may measure in units of its own."""
    observed = problem.observed
    if problem.compression is not None:
        _, observed = problem.compression.against(observed, "l2")(observed)
    return torch.stack([g.flatten(1).square().sum(1) for g in observed.values()]).sum(0)


def _in_turn(each: Sequence[Evaluate]) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """One row after another: less memory, and a wide network fills the cores by itself."""

    def evaluate(z: Tensor) -> tuple[Tensor, Tensor]:
        found = [one(row[None]) for one, row in zip(each, z, strict=True)]
        return torch.cat([value for value, _ in found]), torch.cat([slope for _, slope in found])

    return evaluate
