"""Soteria: the columns of one linear layer's weight gradient that say most about the input are not sent.

Sun et al., "Soteria: Provable Defense against Privacy Leakage in Federated Learning from Representation Perspective",
CVPR 2021. With r the input of the defended layer and X the private sample, feature i scores |d r_i/dX|_2 / (r_i + eps),
summed over the batch. The `share` of the features with the smallest scores is muted: their columns become zero. Biases
and every other tensor are sent as they are. All slopes are exact, with BatchNorm's running statistics, at the weights
the client received; after several local steps the columns of the difference are muted.

Published copies differ in eps: 0 in the DLG notebook, 0.1 in the code for Inverting Gradients (our default, as is its
share), 1e-10 in later re-implementations. The published rule drops what lies below a percentile: for d features and no
ties ceil(share (d - 1)) of them. We drop exactly so many; ties fall by position. A feature that is zero together with
its slope has no score for eps = 0 and counts as 0: its column is zero either way.

How to beat it: the muted columns are visible as zeros, and every other gradient is exact. Leave the tensor out of the
comparison, or compare only its other columns. An attacker who matches the zeros diverges and scores below a grey
picture, which is a failed search and no protection.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from leakgauge.defenses._families import FitsRows
from leakgauge.engine.gradients import kept_bytes, working_model
from leakgauge.engine.memory import fitting
from leakgauge.errors import NotApplicable
from leakgauge.matching.problem import Matching, inside
from leakgauge.models.structure import last_listed_linear
from leakgauge.settings import setting, unknown_name
from leakgauge.types import Attack, Batch, Observation, SharedUpdate, Step

LAST = "last"
_PASSES = 64  # backward passes at once; more are no faster


@dataclass(frozen=True)
class Soteria(FitsRows):
    """Example: `--defense soteria:share=0.6`"""

    name: ClassVar[str] = "soteria"
    summary: ClassVar[str] = "mute the columns of the last layer's gradient that say most about the input"
    paper: ClassVar[str] = "Sun et al. 2021 (Soteria)"
    strength: ClassVar[str] = "share"
    leaves_zeros: ClassVar[bool] = True

    share: float = setting(0.6, "share of the columns that is muted, 0 to 1", low=0, high=1)
    eps: float = setting(0.1, "added to a feature that its slope is divided by; also published: 0 and 1e-10", low=0)
    layer: str = setting(LAST, "the linear layer that is defended, by name; last is the last one the model lists")

    def wrap(self, step: Step) -> Step:
        def muted(model: nn.Module, batch: Batch, seeds: Sequence[int]) -> SharedUpdate:
            shared = step(model, batch, seeds)
            layer = self._layer_in(model)
            weight = _weight_of(layer)
            if weight not in shared.tensors:
                raise NotApplicable(f"soteria mutes columns of {weight!r}, which is frozen in this model")
            columns = kept_columns(scores(model, layer, batch.inputs, self.eps), self.share)  # (T, d)
            return shared.map(lambda name, t: t * columns[:, None].to(t) if name == weight else t)

        return step if self.idle else muted

    def ways(self, attack: Attack) -> tuple[str, ...]:
        """The muted tensor is left out, or only what is left of it is compared."""
        if issubclass(attack.kind, Matching) and not self.idle:
            return ("without the layer", "visible columns")
        return super().ways(attack)

    def informs_matching(self, problem: Matching, observation: Observation, way: str) -> Matching:  # noqa: ARG002
        if way == "visible columns":
            return problem.replace(match_nonzero=True)
        layer = self.layer if self.layer != LAST else self._layer_in(problem.model)
        return problem.without(inside([_weight_of(layer)], problem.observed))

    def _layer_in(self, model: nn.Module) -> str:
        if self.layer != LAST:
            named = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
            if self.layer not in named:
                raise unknown_name("soteria: layer", self.layer, [LAST, *named])
            return self.layer
        found = last_listed_linear(model)
        if found is None:
            raise NotApplicable("soteria needs a model with an nn.Linear layer; this one has none")
        return found


def _weight_of(layer: str) -> str:
    return f"{layer}.weight" if layer else "weight"  # a model that is nothing but this layer


def scores(model: nn.Module, layer: str, inputs: Tensor, eps: float) -> Tensor:
    """(T, d): |d r_i/dX| / (r_i + eps), summed over the samples of each trial; `inputs` are (T, N, *shape)."""
    features, slopes = slope_norms(model, layer, inputs.flatten(0, 1))
    ratios = slopes / (features + eps)
    ratios = torch.where((slopes == 0) & ~torch.isfinite(ratios), 0.0, ratios)  # 0 / 0: a feature that is not there
    return ratios.reshape(*inputs.shape[:2], -1).sum(1)


def slope_norms(model: nn.Module, layer: str, samples: Tensor) -> tuple[Tensor, Tensor]:
    """What enters the layer and the length of each feature's slope in its own sample: (M, d) both.

    One backward pass serves a feature of all samples, because samples do not mix; many features run side by side.
    """
    worker = working_model(model, "eval")
    x = samples.detach().clone().requires_grad_()
    entered: list[Tensor] = []
    hook = worker.get_submodule(layer).register_forward_pre_hook(lambda _, args: entered.append(args[0]))
    with torch.enable_grad():
        worker(x)
    hook.remove()
    if len(entered) != 1 or entered[0].dim() != 2:
        raise NotApplicable(f"soteria needs a layer that runs once on (samples, features), and {layer!r} does not")
    (features,) = entered
    count = features.shape[1]
    if not features.requires_grad:  # nothing stands before it: the features are the sample itself
        raise NotApplicable(f"soteria needs an input that {layer!r} depends on smoothly, and it does not")
    at_once = min(_PASSES, fitting(kept_bytes(worker, samples[:1]) * len(samples), samples.device))
    lengths = []
    for begin in range(0, count, at_once):
        chosen = torch.arange(begin, min(begin + at_once, count), device=x.device)
        ones = torch.zeros(len(chosen), *features.shape, dtype=x.dtype, device=x.device)
        ones[torch.arange(len(chosen)), :, chosen] = 1
        (slope,) = torch.autograd.grad(features, x, ones, retain_graph=True, is_grads_batched=True)
        lengths.append(slope.flatten(2).norm(dim=2))  # (features of this part, M)
    return features.detach(), torch.cat(lengths).T


def kept_columns(scores: Tensor, share: float) -> Tensor:
    """(T, d) bool: False for the ceil(share (d - 1)) features of least |score|; ties fall by position."""
    muted = math.ceil(share * (scores.shape[1] - 1) - 1e-9)  # rounding alone must not mute one more
    order = scores.abs().sort(dim=1, stable=True).indices[:, :muted]
    return torch.ones_like(scores, dtype=torch.bool).scatter(1, order, False)
