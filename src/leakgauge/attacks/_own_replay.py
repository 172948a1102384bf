"""The known client run on what was recovered: does it give the update back? The proof that needs no truth."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from leakgauge.client.chain import client_step
from leakgauge.client.fedavg import local_steps
from leakgauge.engine.gradients import working_model
from leakgauge.engine.memory import fitting
from leakgauge.errors import NotApplicable
from leakgauge.matching.labels import single_label
from leakgauge.matching.updates import classifier_layer, observed_gradient
from leakgauge.types import Batch, DataSpec, Fact, LocalTraining, Observation

_COPIES = 6  # of a gradient, besides what autograd keeps
_ARITHMETIC = 1e-5  # relative: what a client's own sums in float32 are off by, in networks of the usual depth
_ROUNDINGS = 2.0  # and this many times the precision of the numbers that were shared
_TINY = 1e-300


@dataclass(frozen=True)
class OwnReplay:
    """One sample for each trial, put through the client's step in float64, against the update that was seen."""

    net: nn.Module
    local: LocalTraining
    classes: int
    observed: dict[str, Tensor]  # name -> (T, *parameter), float64, as it was shared
    labels: Tensor  # (T, L), those that are possible

    def misfit(self, samples: Tensor, labels: Tensor, scaled: bool = False) -> Tensor:
        """(T, K): how far the update of samples (T, K, *shape) with labels (T, K) is off, relative to the observed.

        With `scaled` at the factor that fits best: whoever clips an update keeps its direction only.
        """
        trials, tried = labels.shape
        per_row = _COPIES * sum(t[0].numel() * t.element_size() for t in self.observed.values())
        at_once = max(1, fitting(per_row * trials, samples.device))
        step = client_step(self.local)
        total = torch.stack([t.flatten(1).square().sum(1) for t in self.observed.values()]).sum(0)[:, None]  # (T, 1)
        costs = []
        for begin in range(0, tried, at_once):
            inputs, own = samples[:, begin : begin + at_once], labels[:, begin : begin + at_once]
            many = own.shape[1]
            rows = Batch(inputs.flatten(0, 1)[:, None], own.flatten()[:, None])
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
    data: DataSpec = observation.fact(Fact.INPUT_SPEC)
    local: LocalTraining = observation.fact(Fact.LOCAL_TRAINING)
    observed = {name: tensor.double() for name, tensor in observation.update.tensors.items()}
    net = working_model(observation.model, local.batchnorm).double()
    return OwnReplay(net, local, data.classes, observed, _possible_labels(observation, data.classes))


def _possible_labels(observation: Observation, classes: int) -> Tensor:
    """(T, 1) where the label is known or can be read, (T, classes) where not."""
    if observation.knows(Fact.LABELS):
        known: Tensor = observation.fact(Fact.LABELS)
        return known
    try:
        return single_label(observed_gradient(observation, signs_do=True), classifier_layer(observation))[:, None]
    except NotApplicable:
        device = next(iter(observation.update.tensors.values())).device
        return torch.arange(classes, device=device).expand(observation.trials, classes)


def precision_of(observation: Observation, name: str) -> float:
    """Relative rounding of the tensor's entries as a gradient: of the numbers that were shared, and of the weights."""
    tensor = observation.update.tensors[name]
    shared = _coarsest(tensor)
    local: LocalTraining = observation.fact(Fact.LOCAL_TRAINING)
    if observation.update.kind == "gradient":
        return shared
    weight = observation.model.get_parameter(name).detach()
    steps = local_steps(observation.fact(Fact.NUM_SAMPLES), local)
    gradient = observed_gradient(observation)[name].double().square().mean().sqrt()
    moved = float(weight.double().square().mean().sqrt() / (local.lr * steps * gradient).clamp_min(_TINY))
    return shared + torch.finfo(tensor.dtype).eps * moved


def tolerance(observation: Observation) -> float:
    """The misfit up to which an update is the same but for rounding."""
    largest = max(observation.update.tensors, key=lambda name: observation.update.tensors[name].numel())
    return _ARITHMETIC + _ROUNDINGS * precision_of(observation, largest)


def _coarsest(tensor: Tensor) -> float:
    """The precision of a tensor's numbers: of its type, or of a shorter one that holds them all as they are."""
    for shorter in (torch.bfloat16, torch.float16):
        if torch.equal(tensor, tensor.to(shorter).to(tensor.dtype)):
            return torch.finfo(shorter).eps
    if tensor.dtype == torch.float64 and torch.equal(tensor, tensor.float().double()):
        return torch.finfo(torch.float32).eps
    return torch.finfo(tensor.dtype).eps
