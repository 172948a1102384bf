"""What attacks that read off one sample share: the known client run on it. Does it give the update back?

The proof that needs no truth.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from leakgauge.client.chain import client_step
from leakgauge.client.fedavg import local_steps
from leakgauge.engine.gradients import working_model
from leakgauge.engine.memory import fitting
from leakgauge.errors import NotApplicable
from leakgauge.matching.labels import revealed_labels, single_label
from leakgauge.matching.targets import read_targets
from leakgauge.matching.updates import classifier_layer, observed_gradient
from leakgauge.types import ONE_CLASS, Attack, Batch, Client, Fact, Observation, Reconstruction

SURE = 0.02  # expected error of a number up to which a sample counts as proven
MENTIONED = 1e-3  # share of the gradient that is not explained from which a note says so
_NOISE = 0.5  # and from which nothing is claimed
_COPIES = 6  # of a gradient, besides what autograd keeps
_ARITHMETIC = 1e-5  # relative: what a client's own sums in float32 are off by, in networks of the usual depth
_ROUNDINGS = 2.0  # and this many times the precision of the numbers that were shared
_TINY = 1e-300


@dataclass(frozen=True)
class OneSample(Attack):
    """The own objective is how far the known client's update of the claimed sample is off."""

    tier: ClassVar[str] = "quick"
    needs: ClassVar[frozenset[Fact]] = frozenset({Fact.INPUT_SPEC, Fact.NUM_SAMPLES, Fact.LOCAL_TRAINING})
    losses: ClassVar[tuple[str, ...]] = ()


@dataclass(frozen=True)
class Answer:
    """What was found, and how well the known client's update of it meets the observed one."""

    samples: Tensor  # (T, *shape)
    labels: Tensor  # (T,)
    misfit: Tensor  # (T,)
    off: Tensor  # (T,) relative error of the length, if the misfit comes from nothing else

    def claimed(self, observation: Observation, began: float, proven: Tensor, residual: Tensor) -> Reconstruction:
        """As an attack claims it; `residual` (T,) is the share of the gradient that is not explained."""
        ones = torch.ones(observation.trials, dtype=torch.long)
        like = next(iter(observation.update.tensors.values()))
        return Reconstruction(
            self.samples[:, None].to(like),
            self.labels[:, None] if observation.fact(Fact.INPUT_SPEC).target == ONE_CLASS else None,
            self.misfit.to(like),
            0 * ones,
            ones,
            time.perf_counter() - began,
            certified=proven.long().cpu(),
            claimed=(residual < _NOISE)[:, None].cpu(),
        )


def best_answer(answer: Callable[[bool], Answer], limit: float) -> Answer:
    """`answer(scaled)` for the update as it is or, where that does not fit, for its direction: it may be clipped."""
    first = answer(False)
    if not bool((first.misfit > limit).any()):
        return first
    other = answer(True)
    better = (first.misfit > limit) & (other.misfit <= limit)
    pairs = {name: (own, getattr(other, name)) for name, own in vars(first).items()}
    chosen = {n: torch.where(better.view(-1, *[1] * (own.dim() - 1)), o, own) for n, (own, o) in pairs.items()}
    return dataclasses.replace(first, **chosen)


@dataclass(frozen=True)
class OwnReplay:
    """One sample for each trial, put through the client's step in float64, against the update that was seen."""

    net: nn.Module
    local: Client
    observed: dict[str, Tensor]  # name -> (T, *parameter), float64, as it was shared
    labels: Tensor  # (T, L), those that are possible
    limit: float  # the misfit up to which an update is the same but for rounding
    targets: Callable[[Tensor, Tensor], Tensor] | None = None  # (samples (T, K, *shape), labels (T, K)) -> what the
    # loss gets, (T, K, *target), where that is no label; infinitely far off where nobody knows it
    known: bool = True

    def misfit(self, samples: Tensor, labels: Tensor, scaled: bool = False) -> Tensor:
        """(T, K): how far the update of samples (T, K, *shape) with labels (T, K) is off, relative to the observed.

        With `scaled` at the factor that fits best: a client that clips an update keeps its direction only.
        """
        trials, tried = labels.shape
        if not self.known:
            return torch.full((trials, tried), torch.inf, device=samples.device, dtype=samples.dtype)
        per_row = _COPIES * sum(t[0].numel() * t.element_size() for t in self.observed.values())
        at_once = max(1, fitting(per_row * trials, samples.device))
        step = client_step(self.local)
        total = torch.stack([t.flatten(1).square().sum(1) for t in self.observed.values()]).sum(0)[:, None]  # (T, 1)
        costs = []
        for begin in range(0, tried, at_once):
            inputs, own = samples[:, begin : begin + at_once], labels[:, begin : begin + at_once]
            many = own.shape[1]
            given = own if self.targets is None else self.targets(inputs, own)
            rows = Batch(inputs.flatten(0, 1)[:, None], given.flatten(0, 1)[:, None])
            made = step(self.net, rows, tuple(range(trials * many))).tensors
            mine = {name: made[name].detach().reshape(trials, many, -1) for name in self.observed}
            factor = self._factor(mine) if scaled else torch.ones_like(own, dtype=samples.dtype)
            off = torch.zeros_like(factor)
            for name, theirs in self.observed.items():
                off += (factor[..., None] * mine[name] - theirs.flatten(1)[:, None]).square().sum(2)
            costs.append((off / total.clamp_min(_TINY)).sqrt())
        return torch.cat(costs, 1)

    def labelled(self, samples: Tensor, scaled: bool = False) -> tuple[Tensor, Tensor]:
        """The label (T,) of each sample (T, *shape) that fits best, and its misfit (T,)."""
        each = samples[:, None].expand(-1, self.labels.shape[1], *samples.shape[1:])
        misfit, best = self.misfit(each, self.labels, scaled).min(1)
        return self.labels.gather(1, best[:, None])[:, 0], misfit

    def _factor(self, mine: dict[str, Tensor]) -> Tensor:
        """(T, K): what the updates are to be taken times, to lie nearest to the observed one; never negative."""
        along = torch.stack([(mine[n] * t.flatten(1)[:, None]).sum(2) for n, t in self.observed.items()]).sum(0)
        size = torch.stack([m.square().sum(2) for m in mine.values()]).sum(0)
        return (along / size.clamp_min(_TINY)).clamp_min(0)


def own_replay(observation: Observation) -> OwnReplay:
    """For an update of one sample. Where no rule reads the label, all of them are possible."""
    local: Client = observation.fact(Fact.LOCAL_TRAINING).declared
    observed = {name: tensor.double() for name, tensor in observation.update.tensors.items()}
    net = working_model(observation.model, local.batchnorm).double()
    largest = max(observed, key=lambda name: observed[name].numel())
    limit = _ARITHMETIC + _ROUNDINGS * precision_of(observation, largest)
    if observation.fact(Fact.INPUT_SPEC).target != ONE_CLASS:
        targets, no_label = _targets(observation, net), torch.zeros(observation.trials, 1, dtype=torch.long)
        no_label = no_label.to(observed[largest].device)
        return OwnReplay(net, local, observed, no_label, limit, targets, targets is not None)
    labels = revealed_labels(observation)
    if labels is None:
        try:
            labels = single_label(observed_gradient(observation, signs_do=True), classifier_layer(observation))[:, None]
        except NotApplicable:
            classes = torch.arange(observation.fact(Fact.INPUT_SPEC).classes, device=observed[largest].device)
            labels = classes.expand(observation.trials, -1)
    return OwnReplay(net, local, observed, labels, limit)


def _targets(observation: Observation, net: nn.Module) -> Callable[[Tensor, Tensor], Tensor] | None:
    """What the loss gets of one sample that has no label: as revealed, as the last bias says, or off the outputs."""
    exact = revealed_labels(observation)
    try:
        read = None if exact is not None else read_targets(observation)
    except NotApplicable:
        return None
    if read is not None and read.residual is not None:
        off, shape = read.residual, observation.fact(Fact.INPUT_SPEC).target_shape

        def behind(samples: Tensor, _: Tensor) -> Tensor:
            with torch.no_grad():
                made = net(samples.flatten(0, 1)).reshape(*samples.shape[:2], -1)
            targets: Tensor = made - off[:, None]
            return targets.reshape(*samples.shape[:2], *shape)

        return behind
    exact = read.exact if read is not None else exact
    if exact is None:
        return None
    return lambda samples, labels: exact.to(samples).expand(-1, labels.shape[1], *exact.shape[2:])


def precision_of(observation: Observation, name: str) -> float:
    """Relative rounding of the tensor's entries as a gradient: of the numbers that were shared, and of the weights."""
    tensor = observation.update.tensors[name]
    shorter = (torch.bfloat16, torch.float16, *([torch.float32] if tensor.dtype == torch.float64 else []))
    fits = (dtype for dtype in shorter if torch.equal(tensor, tensor.to(dtype).to(tensor.dtype)))
    shared = torch.finfo(next(fits, tensor.dtype)).eps  # of the shortest type that holds all numbers as they are
    if observation.update.kind == "gradient":
        return shared
    local: Client = observation.fact(Fact.LOCAL_TRAINING)
    weight = observation.model.get_parameter(name).detach()
    steps = local_steps(observation.fact(Fact.NUM_SAMPLES), local)
    gradient = observed_gradient(observation)[name].double().square().mean().sqrt()
    moved = float(weight.double().square().mean().sqrt() / (local.lr * steps * gradient).clamp_min(_TINY))
    return shared + torch.finfo(tensor.dtype).eps * moved
