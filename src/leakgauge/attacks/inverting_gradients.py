"""Inverting Gradients: match the direction of the gradient with signed Adam, smooth pictures preferred.

Geiping et al., "Inverting Gradients - How easy is it to break privacy in federated learning?", NeurIPS 2020. Cost is
1 - cosine over all tensors together, plus a little total variation; the image's gradient is replaced by its sign, Adam
steps in units of the data's standard deviation, and pixels are kept in their range. The attempt with the lowest cost
without the prior is kept. A weight difference is matched by unrolling the client's local steps.

Where we depart. Published scripts are given the labels; here they are used only if the threat model reveals them, read
off the last layer for one sample, and optimised with the image otherwise (one row per sample: the released code has a
single row for the whole batch). Many victims run side by side.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from leakgauge.attacks._parts.gradient_matching import gradient_distance, merge_trace, part_of
from leakgauge.attacks._parts.labels import single_label
from leakgauge.attacks._parts.priors import mean_variation
from leakgauge.attacks._parts.updates import classifier_layer, observed_gradient
from leakgauge.engine import descent
from leakgauge.engine.gradients import parameters_of, trial_gradients, working_model
from leakgauge.engine.randomness import normal
from leakgauge.fl.fedavg import mini_batches
from leakgauge.settings import setting
from leakgauge.types import Attack, DataSpec, Fact, LocalTraining, Observation, Progress, Reconstruction

LAYERS = ("all", "first", "last", "largest")


@dataclass(frozen=True)
class InvertingGradients(Attack):
    """Cosine matching with signed Adam.

    Example: `leakgauge attack inverting-gradients --data digits --model lenet-dlg --steps 500 --trials 4`
    """

    name: ClassVar[str] = "inverting-gradients"
    summary: ClassVar[str] = "match the gradient's direction with signed Adam and total variation"
    paper: ClassVar[str] = "Geiping et al. 2020, Inverting Gradients, NeurIPS"
    needs: ClassVar[frozenset[Fact]] = frozenset({Fact.INPUT_SPEC, Fact.NUM_SAMPLES, Fact.LOCAL_TRAINING})

    steps: int = setting(4800, "optimiser steps per attempt", low=1)
    restarts: int = setting(1, "attempts; the one with the lowest cost is kept", low=1)
    lr: float = setting(0.1, "step length in standard deviations of the data", above=0)
    optimizer: str = setting("adam", "update rule", choices=descent.RULES)
    signed: bool = setting(True, "use the sign of the image's gradient only")
    boxed: bool = setting(True, "keep pixels in their range")
    tv: float = setting(1e-4, "weight of total variation", low=0)
    distance: str = setting("cosine", "how gradients are compared", choices=("cosine", "l2", "l1"))
    layers: str = setting("all", "which tensors are compared", choices=LAYERS)
    layer_count: int = setting(10, "how many tensors, unless all", low=1)
    match_nonzero: bool = setting(False, "compare only entries that are not exactly zero in the update")

    def reconstruct(self, observation: Observation, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:
        began = time.perf_counter()
        puzzle = _Puzzle.of(self, observation)
        trials = observation.trials
        best = puzzle.mean.new_full((trials, puzzle.width), torch.nan)
        value = puzzle.mean.new_full((trials,), torch.inf)
        steps, evaluations = torch.zeros(2, trials, dtype=torch.long, device=puzzle.device)
        trace: Tensor | None = None
        for attempt in range(self.restarts):
            found = descent.descend(
                puzzle.evaluator, normal(seeds, f"start/{attempt}", (puzzle.width,)).to(puzzle.mean),
                steps=self.steps, lr=self.lr, rule=self.optimizer, signed=self.signed, project=puzzle.project,
                progress=part_of(progress, attempt, self.restarts),
            )  # fmt: skip
            better = found.value < value
            best = torch.where(better[:, None], found.x, best)
            trace = merge_trace(trace, found.trace, torch.arange(trials, device=puzzle.device), better, trials)
            value = torch.where(better, found.value, value)
            steps, evaluations = steps + found.steps, evaluations + found.evaluations
        inputs, logits = puzzle.split(best)
        labels = puzzle.labels if logits is None else logits.argmax(-1)
        return Reconstruction(inputs, labels, value, steps, evaluations, time.perf_counter() - began, trace)


@dataclass(frozen=True)
class _Puzzle:
    """One matching problem per trial over z = (normalised inputs, label logits)."""

    attack: InvertingGradients
    model: nn.Module
    observed: Mapping[str, Tensor]  # gradient, or weight difference if steps are unrolled
    shape: tuple[int, ...]  # (N, *sample)
    classes: int
    mean: Tensor  # broadcast over a sample
    std: Tensor
    labels: Tensor | None  # (T, N), or None where they are optimised
    local: LocalTraining

    @classmethod
    def of(cls, attack: InvertingGradients, observation: Observation) -> _Puzzle:
        data: DataSpec = observation.fact(Fact.INPUT_SPEC)
        local: LocalTraining = observation.fact(Fact.LOCAL_TRAINING)
        gradient = observed_gradient(observation)
        target = gradient if local.kind == "fedsgd" else dict(observation.update.tensors)
        like = next(iter(target.values()))  # device and precision
        flat = [1] * (len(data.shape) - 1)
        mean = like.new_tensor(data.mean or (0.5,)).view(-1, *flat)
        std = like.new_tensor(data.std or (0.25,)).view(-1, *flat)
        samples: int = observation.fact(Fact.NUM_SAMPLES)
        labels: Tensor | None = None
        if observation.knows(Fact.LABELS):
            labels = observation.fact(Fact.LABELS)
        elif samples == 1:
            labels = single_label(gradient, classifier_layer(observation))[:, None]
        chosen = {name: target[name] for name in choose_layers(target, attack.layers, attack.layer_count)}
        model = working_model(observation.model, local.batchnorm)
        return cls(attack, model, chosen, (samples, *data.shape), data.classes, mean, std, labels, local)

    @property
    def device(self) -> torch.device:
        return self.mean.device

    @property
    def pixels(self) -> int:
        return int(torch.Size(self.shape).numel())

    @property
    def width(self) -> int:
        return self.pixels + (self.shape[0] * self.classes if self.labels is None else 0)

    def split(self, z: Tensor) -> tuple[Tensor, Tensor | None]:
        """(A, D) -> inputs (A, N, *sample) in pixel values and logits (A, N, C) or None."""
        inputs = z[:, : self.pixels].reshape(-1, *self.shape) * self.std + self.mean
        if self.labels is not None:
            return inputs, None
        return inputs, z[:, self.pixels :].reshape(-1, self.shape[0], self.classes)

    def project(self, z: Tensor) -> Tensor:
        """Pixels back into [0, 1]; label logits are free."""
        if not self.attack.boxed:
            return z
        images = z[:, : self.pixels].reshape(-1, *self.shape)
        boxed = torch.minimum(torch.maximum(images, -self.mean / self.std), (1 - self.mean) / self.std)
        return torch.cat((boxed.flatten(1), z[:, self.pixels :]), 1)

    def evaluator(self, rows: Tensor) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        """Cost without the prior, and the gradient of cost plus prior, for the trials `rows`."""
        observed = {name: g[rows] for name, g in self.observed.items()}
        known = {name: g != 0 for name, g in observed.items()} if self.attack.match_nonzero else None
        labels = None if self.labels is None else self.labels[rows]

        def evaluate(z: Tensor) -> tuple[Tensor, Tensor]:
            z = z.detach().requires_grad_()
            inputs, logits = self.split(z)
            targets = labels if logits is None else torch.softmax(logits, -1)
            assert targets is not None
            cost = gradient_distance(self._simulated(inputs, targets), observed, self.attack.distance, known)
            prior = self.attack.tv * mean_variation((inputs - self.mean) / self.std)
            (slope,) = torch.autograd.grad((cost + prior).sum(), z)
            return cost.detach(), slope

        return evaluate

    def _simulated(self, inputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """What a client with these samples would share."""
        if self.local.kind == "fedsgd":
            return trial_gradients(self.model, inputs, targets)
        before = parameters_of(self.model)
        weights: dict[str, Tensor] = {n: p.expand(len(inputs), *p.shape) for n, p in before.items()}
        for part in mini_batches(inputs.shape[1], self.local):
            gradients = trial_gradients(self.model, inputs[:, part], targets[:, part], weights)
            weights = {n: w - self.local.lr * gradients[n] for n, w in weights.items()}
        return {n: w - before[n] for n, w in weights.items()}


def choose_layers(tensors: Mapping[str, Tensor], which: str, count: int) -> list[str]:
    """Names of the tensors that enter the cost, in the model's order."""
    names = list(tensors)
    if which == "first":
        return names[:count]
    if which == "last":
        return names[-count:]
    if which == "largest":  # by the mean norm over trials
        norms = {n: float(t.flatten(1).norm(dim=1).mean()) for n, t in tensors.items()}
        return sorted(sorted(names, key=lambda n: -norms[n])[:count], key=names.index)
    return names
