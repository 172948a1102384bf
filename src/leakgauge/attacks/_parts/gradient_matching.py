"""The common core of DLG and its relatives: find inputs whose gradient equals the observed one.

Distance between a trial's gradient g' and the observed g, over all tensors and entries r = g' - g:
  l2   sum r^2                       what DLG minimises; the likelihood under Gaussian noise
  l1   sum sqrt(r^2 + e^2) - e       the likelihood under Laplace noise, its corner rounded
  cosine  1 - cosine(g', g)          blind to scale (Inverting Gradients)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from leakgauge.attacks._parts.priors import total_variation
from leakgauge.attacks._parts.starts import STARTS, start_inputs
from leakgauge.attacks._parts.updates import observed_gradient
from leakgauge.engine import lbfgs
from leakgauge.engine.gradients import trial_gradients, working_model
from leakgauge.engine.randomness import normal
from leakgauge.settings import setting
from leakgauge.types import Attack, Batch, DataSpec, Fact, LocalTraining, Observation, Progress, Reconstruction

_CORNER = 1e-4  # e of the rounded l1
_LABEL_STRETCH = 10.0  # the optimiser moves label logits in units of 10: a one-hot label lies far out and flat
_PATIENCE = 12  # steps (of 20 iterations) without 1 % of progress, after which an attempt is given up


@dataclass(frozen=True)
class GradientMatching(Attack):
    """Fields and loop shared by attacks that match gradients with L-BFGS from a random start."""

    steps: int = setting(300, "L-BFGS steps per attempt, 20 iterations each", low=1)
    init: str = setting("random", "where the inputs start", choices=STARTS)
    restarts: int = setting(3, "attempts at most; another is made while the threshold is missed", low=1)
    lr: float = setting(1.0, "L-BFGS step length", above=0)
    history: int = setting(100, "pairs that L-BFGS remembers", low=1)
    line_search: str = setting("armijo", "shorten steps that do not go down, or never", choices=("armijo", "fixed"))
    threshold: float = setting(1e-6, "gradient distance that counts as solved", above=0)
    distance: str = setting("l2", "how gradients are compared", choices=("l2", "l1"))
    tv: float = setting(0.0, "weight of total variation beside the distance, for pictures", low=0)
    noise_std: float = setting(0.0, "scale of the noise known to be in each entry: what it explains is solved", low=0)
    match_nonzero: bool = setting(False, "compare only entries that are not exactly zero in the update")

    def match(
        self, observation: Observation, seeds: tuple[int, ...], progress: Progress, labels: Tensor | None
    ) -> Reconstruction:
        """Optimise the inputs, and the labels with them where they are None. Attempts are chosen by own objective."""
        began = time.perf_counter()
        puzzle = _puzzle(self, observation, labels)
        trials, width = observation.trials, puzzle.width
        best = puzzle.like.new_full((trials, width), torch.nan)
        value = puzzle.like.new_full((trials,), torch.inf)
        steps, evaluations = torch.zeros(2, trials, dtype=torch.long, device=puzzle.like.device)
        trace: Tensor | None = None
        open_trials = list(range(trials))
        for attempt in range(self.restarts):
            rows = torch.tensor(open_trials, device=puzzle.like.device)
            start = puzzle.start([seeds[t] for t in open_trials], attempt)
            found = self._attempt(puzzle, rows, start, part_of(progress, attempt, self.restarts))
            steps[rows] += found.steps
            evaluations[rows] += found.evaluations
            better = found.value < value[rows]
            best[rows] = torch.where(better[:, None], found.x, best[rows])
            value[rows] = torch.where(better, found.value, value[rows])
            trace = merge_trace(trace, found.trace, rows, better, trials)
            open_trials = torch.nonzero(~self._settled(value, trace, puzzle))[:, 0].tolist()
            if not open_trials:
                break
        inputs, logits = puzzle.split(best)
        found_labels = labels if logits is None else logits.argmax(-1)
        return Reconstruction(inputs, found_labels, value, steps, evaluations, time.perf_counter() - began, trace)

    def prior(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:  # noqa: ARG002
        """What is added to the distance, (A,): total variation here."""
        return self.tv * total_variation(inputs) if self.tv else inputs.new_zeros(len(inputs))

    def _settled(self, value: Tensor, trace: Tensor, puzzle: _Puzzle) -> Tensor:
        """(T,) bool: is another attempt pointless? With a prior there is no threshold: half the start will do."""
        solved = value < puzzle.solved_below
        return solved | (value < 0.5 * trace[:, 0]) if self.tv else solved

    def _attempt(self, puzzle: _Puzzle, rows: Tensor, start: Tensor, progress: Progress) -> lbfgs.Minimum:
        """One attempt at the trials `rows`, from `start` (A, D)."""
        return lbfgs.minimise(
            lambda some: puzzle.evaluator(rows[some]),
            start,
            steps=self.steps,
            lr=self.lr,
            history=self.history,
            line_search=self.line_search,
            stop_below=puzzle.solved_below,
            patience=_PATIENCE,
            progress=progress,
        )


@dataclass(frozen=True)
class _Puzzle:
    """One matching problem per trial, as a function of a flat vector z = (inputs, label logits)."""

    model: nn.Module
    observed: Mapping[str, Tensor]
    shape: tuple[int, ...]  # (N, *sample)
    classes: int
    labels: Tensor | None
    public: Batch | None
    attack: GradientMatching

    @property
    def like(self) -> Tensor:
        """A tensor on the update's device and in its precision."""
        return next(iter(self.observed.values()))

    @property
    def pixels(self) -> int:
        return int(torch.Size(self.shape).numel())

    @property
    def width(self) -> int:
        return self.pixels + (self.shape[0] * self.classes if self.labels is None else 0)

    @property
    def solved_below(self) -> float:
        """The attack's threshold, or the distance that known noise alone explains, if that is larger."""
        entries = sum(int(g[0].numel()) for g in self.observed.values())
        noise = self.attack.noise_std
        return max(self.attack.threshold, entries * (noise**2 if self.attack.distance == "l2" else noise))

    def start(self, seeds: list[int], attempt: int) -> Tensor:
        """Inputs as the attack begins them and label logits at N(0, 1), as a flat vector: (A, D)."""
        inputs = start_inputs(self.attack.init, seeds, f"start/{attempt}", self.shape, self.public)
        logits = normal(seeds, f"labels/{attempt}", (self.width - self.pixels,)) / _LABEL_STRETCH
        return torch.cat((inputs.flatten(1), logits), 1).to(self.like)

    def split(self, z: Tensor) -> tuple[Tensor, Tensor | None]:
        """(A, D) -> inputs (A, N, *sample) and logits (A, N, C) or None."""
        inputs = z[:, : self.pixels].reshape(-1, *self.shape)
        return inputs, None if self.labels is not None else _LABEL_STRETCH * z[:, self.pixels :].reshape(
            -1, self.shape[0], self.classes
        )

    def evaluator(self, rows: Tensor) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        """Objective and its gradient for the trials `rows`."""
        observed = {name: g[rows] for name, g in self.observed.items()}
        known = {name: g != 0 for name, g in observed.items()} if self.attack.match_nonzero else None
        labels = None if self.labels is None else self.labels[rows]

        def evaluate(z: Tensor) -> tuple[Tensor, Tensor]:
            z = z.detach().requires_grad_()
            inputs, logits = self.split(z)
            targets = labels if logits is None else torch.softmax(logits, -1)
            assert targets is not None
            gradients = trial_gradients(self.model, inputs, targets)
            value = gradient_distance(gradients, observed, self.attack.distance, known)
            value = value + self.attack.prior(self.model, inputs, targets)
            (slope,) = torch.autograd.grad(value.sum(), z)
            return value.detach(), slope

        return evaluate


def gradient_distance(
    gradients: Mapping[str, Tensor],
    observed: Mapping[str, Tensor],
    distance: str = "l2",
    known: Mapping[str, Tensor] | None = None,
) -> Tensor:
    """Distance per trial (T,) over all tensors; entries where `known` is False are left out."""
    if distance == "cosine":
        return _cosine_distance(gradients, observed, known)
    total = torch.zeros(1)
    for name, target in observed.items():
        residual = gradients[name] - target
        if known is not None:
            residual = residual * known[name]
        cost = residual**2 if distance == "l2" else (residual**2 + _CORNER**2).sqrt() - _CORNER
        total = total.to(cost) + cost.flatten(1).sum(1)
    return total


def _cosine_distance(
    gradients: Mapping[str, Tensor], observed: Mapping[str, Tensor], known: Mapping[str, Tensor] | None
) -> Tensor:
    """1 - cosine per trial, inner product and norms over all tensors together."""
    inner = own = other = torch.zeros(1)
    for name, target in observed.items():
        mine = gradients[name] if known is None else gradients[name] * known[name]
        inner = inner.to(mine) + (mine * target).flatten(1).sum(1)
        own = own.to(mine) + (mine * mine).flatten(1).sum(1)
        other = other.to(mine) + (target * target).flatten(1).sum(1)
    return torch.ones_like(inner) - inner / (own * other).clamp_min(1e-30).sqrt()


def _puzzle(attack: GradientMatching, observation: Observation, labels: Tensor | None) -> _Puzzle:
    data: DataSpec = observation.fact(Fact.INPUT_SPEC)
    local: LocalTraining = observation.fact(Fact.LOCAL_TRAINING)
    return _Puzzle(
        model=working_model(observation.model, local.batchnorm),
        observed=observed_gradient(observation),
        shape=(observation.fact(Fact.NUM_SAMPLES), *data.shape),
        classes=data.classes,
        labels=labels,
        public=observation.fact(Fact.PUBLIC_DATA) if observation.knows(Fact.PUBLIC_DATA) else None,
        attack=attack,
    )


def part_of(progress: Progress, part: int, parts: int) -> Progress:
    """Progress of one part among several equal ones."""
    return lambda share: progress((part + share) / parts)


def merge_trace(old: Tensor | None, new: Tensor, rows: Tensor, better: Tensor, trials: int) -> Tensor:
    """Keep each trial's trace of the attempt that is kept; shorter ones are filled with nan."""
    length = max(new.shape[1], 0 if old is None else old.shape[1])
    merged = torch.full((trials, length), torch.nan, device=new.device, dtype=new.dtype)
    if old is not None:
        merged[:, : old.shape[1]] = old
    kept = rows[better]
    merged[kept] = torch.nan
    merged[kept, : new.shape[1]] = new[better]
    return merged
