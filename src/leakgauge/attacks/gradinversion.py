"""GradInversion: match the gradient with priors on pictures, on BatchNorm statistics and on what several seeds agree.

Yin et al., "See through Gradients: Image Batch Recovery via GradInversion", CVPR 2021. The gradients' squared distance
is joined by total variation, the norm, the distance of BatchNorm statistics and the distance to a consensus of several
seeds that run side by side; Adam steps with a warm-up and a cosine, with Langevin noise, pixels kept in range. Labels
are read off the last layer first, as in the paper for batches of distinct labels.

Where we depart. The paper knows the BatchNorm statistics of the private batch; here they are used only if the threat
model reveals them ("+batchnorm"), else, with less weight, the averages that the model carries, or none if it never saw
a batch. The consensus is the mean after a shift by whole pixels (phase correlation) instead of RANSAC-flow. Every term
is relative, to the observed gradient's norm, to a layer's statistics or to the number of pixels, so that one set of
weights serves all networks; the paper's belong to sums in one network. The image's gradient is flattened softly before
Adam sees it (`soft_sign=false` is theirs), and the noise is that of the breaching library, whose author found the
paper's 0.2 too large. Several local steps are matched by their mean gradient. The seed with the lowest objective,
consensus left out, is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from leakgauge.engine.driving import Budget, Evaluate, Minimum, Problem, State, drive
from leakgauge.engine.gradients import runs_one_by_one
from leakgauge.engine.randomness import normal
from leakgauge.matching.attempts import Minimise, SearchAttack
from leakgauge.matching.labels import inferred_labels, revealed_labels
from leakgauge.matching.priors import mean_variation
from leakgauge.matching.problem import Matching, matching_of, one_by_one, units_of_data
from leakgauge.settings import setting
from leakgauge.types import Fact, Observation, Progress

CONSENSUS = ("registered", "mean")
_FURTHEST = 0.25  # of a side: a larger shift is rather chance than the same object elsewhere
_ROUNDING = 1e-12
_NOTHING = 1e-12  # squared norm of an update that holds nothing to match
_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8

Statistics = Mapping[str, tuple[Tensor, Tensor]]  # layer -> mean and variance, (C,) or (A, C)
Agree = Callable[[Tensor, Tensor], Tensor]  # (points (A, D), their trials (A,)) -> what each should resemble (A, D)


@dataclass(frozen=True)
class GradInversion(SearchAttack):
    """Gradient matching with BatchNorm statistics and group consistency.

    Example: `leakgauge attack gradinversion --data photos32 --model resnet20 --steps 500 --trials 2`
    """

    name: ClassVar[str] = "gradinversion"
    summary: ClassVar[str] = "match gradient and BatchNorm statistics from several seeds that must agree"
    paper: ClassVar[str] = "Yin et al. 2021, See through Gradients (GradInversion), CVPR"
    tier: ClassVar[str] = "standard"
    cost: ClassVar[float] = 7.0
    in_suites: ClassVar[Mapping[str, str | None]] = {"standard": "steps=5000,restarts=2"}

    steps: int = setting(20_000, "optimiser steps", low=1)
    restarts: int = setting(4, "seeds that run side by side; the one with the lowest objective is kept", low=1)
    lr: float = setting(0.1, "largest step length in standard deviations of the data", above=0)
    warm_up: int = setting(50, "steps over which the step length rises", low=0)
    gradient: float = setting(1.0, "weight of the squared distance of gradients, relative to the observed", above=0)
    tv: float = setting(1e-3, "weight of total variation", low=0)
    l2: float = setting(1e-6, "weight of the mean square of the inputs", low=0)
    batchnorm: float = setting(0.1, "weight of the relative distance to the batch's BatchNorm statistics", low=0)
    averages: float = setting(0.01, "the same to the model's averages, if the batch's statistics are hidden", low=0)
    group: float = setting(0.01, "weight of the mean square distance to what the seeds agree on", low=0)
    agreement: str = setting("registered", "what they agree on: a mean, with pictures moved onto it", choices=CONSENSUS)
    soft_sign: bool = setting(True, "flatten the image's gradient softly before each step, as inverting-gradients does")
    noise: float = setting(0.01, "standard deviation of Langevin noise, in step lengths", low=0)
    boxed: bool = setting(True, "keep pixels in their range")

    def problem(self, observation: Observation, seeds: tuple[int, ...]) -> Matching:  # noqa: ARG002
        """Inputs in standard deviations of the data; the priors are added by `_grouped`."""
        revealed = revealed_labels(observation)
        labels = inferred_labels(observation, "yin") if revealed is None else revealed
        return matching_of(observation, labels, distance="l2", variation=self.tv, **units_of_data(observation))

    def optimiser(self, problem: Matching, seeds: tuple[int, ...]) -> Minimise:
        """All seeds to their end: none is given up, because the consensus needs all."""

        def agree(z: Tensor, trials: Tensor) -> Tensor:
            """On the inputs; whatever else is searched for stays each seed's own."""
            inputs, rest = z[:, : problem.pixels], z[:, problem.pixels :]
            agreed = consensus(inputs.reshape(-1, *problem.shape), trials, self.agreement)
            return torch.cat((agreed.flatten(1), rest), 1)

        def minimise(_: Problem, start: Tensor, *, attempts: int, until: float, progress: Progress) -> Minimum:
            project, pull = problem.boxed if self.boxed else lambda z: z, self.group if attempts > 1 else 0.0
            settings = self.steps, self.lr, self.warm_up, self.noise, pull, self.soft_sign
            method = GroupDescent(*settings, project=project, agree=agree, seeds=seeds, attempts=attempts)
            budget = Budget(self.steps, until=until, progress=progress)
            return drive(method, self._grouped(problem, attempts), start, budget)

        return minimise

    def _grouped(self, problem: Matching, attempts: int) -> Problem:
        """Rows are trials x seeds. Each trial's rows are held to that trial's own BatchNorm statistics."""
        (wanted, strength), observed = self._statistics(problem.observation), problem.observed
        together = problem.observation.fact(Fact.LOCAL_TRAINING).batchnorm == "eval"
        if problem.compression is not None:  # which may measure in units of its own
            _, observed = problem.compression.against(observed, "l2")(observed)
        size = torch.stack([g.flatten(1).square().sum(1) for g in observed.values()]).sum(0)
        weight = self.gradient / size.clamp_min(_NOTHING)  # (T,)

        def evaluator(trials: Tensor) -> Evaluate:
            own = {n: (m[trials], v[trials]) if m.dim() == 2 else (m, v) for n, (m, v) in wanted.items()}
            factor = weight[trials]

            def prior(guess: Matching, inputs: Tensor, _: Tensor) -> Tensor:
                assert guess.variation is not None
                scaled = guess.in_units(inputs)
                value = guess.variation * mean_variation(scaled) + self.l2 * (scaled**2).flatten(1).mean(1)
                if own:
                    value = value + strength * statistics_gap(batch_statistics(guess.model, inputs, together), own)
                return value / factor  # the whole is multiplied by it below, and these terms are relative already

            evaluate = problem.replace(prior=prior).evaluator(trials)

            def weighted(z: Tensor) -> tuple[Tensor, Tensor]:
                value, slope = evaluate(z)
                return factor * value, factor[:, None] * slope

            return weighted

        def rows_of_trials(rows: Tensor) -> Evaluate:
            trials = rows // attempts
            if not runs_one_by_one(problem.model):
                return evaluator(trials)
            return one_by_one([evaluator(trial[None]) for trial in trials])

        return rows_of_trials

    def _statistics(self, observation: Observation) -> tuple[Statistics, float]:
        """What to resemble and how much that counts: (T, C) each where revealed, else (C,) of the model's averages."""
        if observation.knows(Fact.BATCHNORM_STATISTICS):
            return (observation.fact(Fact.BATCHNORM_STATISTICS) if self.batchnorm else {}), self.batchnorm
        return (running_statistics(observation.model) if self.averages else {}), self.averages


def running_statistics(model: nn.Module) -> dict[str, tuple[Tensor, Tensor]]:
    """The averages (C,) that the layers have kept; none of a layer that never saw a batch: its zeros say nothing."""
    found = {}
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and module.running_mean is not None and module.running_var is not None:
            count = module.num_batches_tracked
            if count is None or int(count) > 0:
                found[name] = (module.running_mean.detach(), module.running_var.detach())
    return found


def batch_statistics(model: nn.Module, inputs: Tensor, together: bool) -> dict[str, tuple[Tensor, Tensor]]:
    """Mean and variance per channel of what enters each BatchNorm layer: (A, N, *sample) -> (A, C) each.

    Of every trial's own samples; differentiable in the inputs. `model` comes from `working_model`. With `together` all
    trials share one pass, which is right unless the layers normalise by the batch at hand.
    """
    if not together:
        each = [batch_statistics(model, one[None], together=True) for one in inputs]
        return {n: (torch.cat([row[n][0] for row in each]), torch.cat([row[n][1] for row in each])) for n in each[0]}
    found: dict[str, tuple[Tensor, Tensor]] = {}
    with ExitStack() as hooks:
        for name, module in model.named_modules():
            if isinstance(module, _BatchNorm):

                def note(_: nn.Module, args: tuple[Tensor, ...], name: str = name) -> None:
                    entered = args[0].reshape(*inputs.shape[:2], *args[0].shape[1:])  # (A, N, C, ...)
                    over = [d for d in range(1, entered.dim()) if d != 2]
                    found[name] = (entered.mean(over), entered.var(over, unbiased=False))

                hooks.enter_context(module.register_forward_pre_hook(note))
        model(inputs.flatten(0, 1))
    return found


def statistics_gap(found: Statistics, wanted: Statistics) -> Tensor:
    """(A,): distance of means plus distance of variances, as norms over channels, averaged over the layers wanted.

    Means in units of the layer's spread and variances in units of themselves, so that it is about 1 for a poor guess
    in any network: without that, layers with large activations would drown the others.
    """
    tiny = torch.finfo(next(iter(found.values()))[0].dtype).tiny
    parts = []
    for name, (mean, variance) in wanted.items():
        spread, own = torch.linalg.vector_norm(variance.sqrt(), dim=-1), torch.linalg.vector_norm(variance, dim=-1)
        parts.append(torch.linalg.vector_norm(found[name][0] - mean, dim=1) / spread.clamp_min(tiny))
        parts.append(torch.linalg.vector_norm(found[name][1] - variance, dim=1) / own.clamp_min(tiny))
    return torch.stack(parts).sum(0) / len(wanted)


def consensus(inputs: Tensor, trials: Tensor, kind: str = "registered") -> Tensor:
    """For each row of (A, N, *sample) what the rows of the same trial, `trials` (A,), agree on: their mean.

    Gradients hardly say where in the picture an object is, so attempts recover it in different places. "registered"
    first moves each picture onto the plain mean, by the circular shift that phase correlation finds.
    """
    mean = mean_by_trial(inputs, trials)
    if kind == "mean" or inputs.dim() != 5:
        return mean
    return mean_by_trial(moved(inputs, shifts(inputs, mean)), trials)


def mean_by_trial(inputs: Tensor, trials: Tensor) -> Tensor:
    """For each row the mean over the rows of its trial."""
    mean = torch.empty_like(inputs)
    for trial in torch.unique(trials):
        own = trials == trial
        mean[own] = inputs[own].mean(0)
    return mean


def shifts(inputs: Tensor, onto: Tensor) -> Tensor:
    """Rows and columns (A, N, 2) by which each picture of (A, N, C, H, W) must be rolled to lie on its counterpart."""
    height, width = inputs.shape[-2:]
    mine, theirs = torch.fft.rfft2(inputs), torch.fft.rfft2(onto)
    cross = (theirs * mine.conj()).sum(-3)  # all channels move together
    surface = torch.fft.irfft2(cross / cross.abs().clamp_min(_ROUNDING), s=(height, width))  # (A, N, H, W)
    down, right = _signed(height, inputs), _signed(width, inputs)
    near = (down.abs() <= _FURTHEST * height)[:, None] & (right.abs() <= _FURTHEST * width)
    best = surface.masked_fill(~near, -torch.inf).flatten(-2).argmax(-1)  # (A, N)
    return torch.stack((down[best // width], right[best % width]), -1)


def moved(inputs: Tensor, by: Tensor) -> Tensor:
    """Each picture rolled by its own rows and columns; without asking the device for them."""
    height, width = inputs.shape[-2:]
    rows = (torch.arange(height, device=by.device) - by[..., :1]) % height  # (A, N, H)
    columns = (torch.arange(width, device=by.device) - by[..., 1:]) % width  # (A, N, W)
    place = (rows[..., :, None] * width + columns[..., None, :]).flatten(-2)  # (A, N, H x W)
    flat = inputs.flatten(-2)
    return flat.gather(-1, place[:, :, None].expand_as(flat)).view_as(inputs)


def _signed(side: int, like: Tensor) -> Tensor:
    """0, 1, ... up to half the side, then negative: what an index of a circular correlation means."""
    index = torch.arange(side, device=like.device)
    return torch.where(index > side // 2, index - side, index)


@dataclass
class _State(State):
    first: Tensor  # (A, D) running moments
    second: Tensor
    taken: Tensor  # (A, 1) steps taken
    noise: Tensor  # (A, per_check, D) for the steps until the next look
    agreed: Tensor  # (A, D)
    row: Tensor  # (A,) number among all rows: trial x attempts + attempt


@dataclass(frozen=True)
class GroupDescent:
    """Adam with a warm-up, Langevin noise and a pull towards what the attempts at one trial agree on.

    A method for `engine.driving.drive`; rows lie trial by trial, `attempts` each, and trials never influence each
    other. Noise and consensus are renewed at every look, outside of what a GPU records and replays.
    """

    steps: int
    lr: float
    warm_up: int  # steps over which the rate rises
    noise: float  # standard deviation of what is added, in units of the rate
    pull: float  # weight of the mean square distance to the consensus
    soft_sign: bool  # Adam sees g / (|g| + mean |g|), which few very steep pixels cannot rule
    project: Callable[[Tensor], Tensor]
    agree: Agree
    seeds: tuple[int, ...]
    attempts: int
    per_check: int = 10
    per_step: int = 1

    def begin(self, start: Tensor) -> _State:
        state = _State(
            **State.common(self.project(start.clone())),
            first=torch.zeros_like(start),
            second=torch.zeros_like(start),
            taken=torch.zeros(len(start), 1, dtype=torch.float64, device=start.device),
            noise=start.new_zeros(len(start), self.per_check if self.noise else 0, start.shape[1]),
            agreed=torch.zeros_like(start),
            row=torch.arange(len(start), device=start.device),
        )
        self._renew(state, block=0)
        return state

    def iterate(self, state: State, evaluate: Evaluate) -> None:
        assert isinstance(state, _State)
        value, gradient = evaluate(state.x)
        state.note(value)
        state.done |= ~torch.isfinite(value)
        if self.pull:
            gradient = gradient + (2 * self.pull / gradient.shape[1]) * (state.x - state.agreed)
        if self.soft_sign:
            size = gradient.abs()
            gradient = gradient / (size + size.mean(1, keepdim=True)).clamp_min(torch.finfo(size.dtype).tiny)
        rate = self._rate(state.taken).to(gradient.dtype)
        x = state.x - rate * self._direction(state, gradient)
        if self.noise:
            slot = (state.taken.long() % self.per_check)[..., None].expand(-1, 1, x.shape[1])
            x = x + rate * self.noise * state.noise.gather(1, slot)[:, 0]
        state.x.copy_(torch.where(state.done[:, None], state.x, self.project(x)))
        state.taken += 1

    def look(self, state: State) -> None:
        assert isinstance(state, _State)
        taken = int(state.taken.max())  # rows that go on have all taken equally many
        self._renew(state, block=taken // self.per_check + 1)

    def _renew(self, state: _State, block: int) -> None:
        if self.noise:
            for place, row in enumerate(state.row.tolist()):
                seed, attempt = self.seeds[row // self.attempts], row % self.attempts
                state.noise[place] = normal([seed], f"noise/{attempt}/{block}", state.noise.shape[1:])[0].to(state.x)
        if self.pull:
            state.agreed.copy_(self.agree(state.x, state.row // self.attempts))

    def _rate(self, taken: Tensor) -> Tensor:
        rising = ((taken + 1) / self.warm_up).clamp_max(1) if self.warm_up else torch.ones_like(taken)
        return self.lr * rising * 0.5 * (1 + torch.cos(math.pi * taken / self.steps))

    def _direction(self, state: _State, g: Tensor) -> Tensor:
        """Adam's step for a rate of one."""
        state.first.mul_(_BETA1).add_(g, alpha=1 - _BETA1)
        state.second.mul_(_BETA2).add_(g * g, alpha=1 - _BETA2)
        mean = state.first / (1 - _BETA1 ** (state.taken + 1)).to(g.dtype)
        scale = (state.second / (1 - _BETA2 ** (state.taken + 1)).to(g.dtype)).sqrt() + _EPSILON
        return mean / scale
