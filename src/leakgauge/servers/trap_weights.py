"""Curious Abandon Honesty: first-layer weights that most samples leave silent, so that units answer to single ones.

Boenisch et al., "When the Curious Abandon Honesty: Federated Learning Is Not Private", IEEE EuroS&P 2023. Half of a
row's weights are negative, the other half are the same numbers, shuffled, positive and a little smaller. On inputs in
[0, 1] such a unit is seldom above zero, and often for one sample of a batch only. Its weight gradient divided by its
bias gradient is then that sample.

Which rows held one sample is not seen directly. A ratio is certified if, sent through the network with some label, it
would have left just that bias gradient. Where that cannot be checked, after several local steps, two rows with the
same ratio tell: mixtures would have to be mixed alike twice. Certified ratios come first, then other ratios in the
data's range, those of more rows before those of fewer.

Where we depart. The layer's bias undoes a normalisation inside the model, so that the rows see inputs in [0, 1]. The
published scale of 0.95 suits pictures of 32 pixels; `active` sets it by public samples instead. The variant for
convolutional networks, whose kernels copy the input to a dense layer, is left out: pooling and strides lose pixels.
"""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from leakgauge.client.fedavg import local_steps
from leakgauge.engine.gradients import run_one_by_one, runs_one_by_one
from leakgauge.engine.randomness import generator
from leakgauge.errors import NotApplicable
from leakgauge.matching.labels import inferred_labels
from leakgauge.matching.updates import example_input, observed_gradient
from leakgauge.models.structure import first_linear, input_affine
from leakgauge.servers._parts.agreement import agreement, strongest_of_each
from leakgauge.servers._parts.certificate import alone_in_unit
from leakgauge.servers._parts.imprint_reading import in_range
from leakgauge.settings import setting
from leakgauge.types import (
    BLANK,
    CROSS_ENTROPY,
    NLL_ON_LOGITS,
    Batch,
    DataSpec,
    Fact,
    LocalTraining,
    Observation,
    Progress,
    Reconstruction,
    TamperingServer,
)

_Affine = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class TrapWeights(TamperingServer):
    """Trap weights in a first layer of Linear and ReLU.

    Example: `leakgauge attack trap-weights --model mlp --batch-size 8 --threat-model malicious-parameters`
    """

    name: ClassVar[str] = "trap-weights"
    summary: ClassVar[str] = "first-layer weights that fire for few samples, so that single rows give them away"
    paper: ClassVar[str] = "Boenisch et al. 2023, When the Curious Abandon Honesty, EuroS&P"
    tier: ClassVar[str] = "quick"
    cost: ClassVar[float] = 21.0
    needs: ClassVar[frozenset[Fact]] = frozenset({Fact.INPUT_SPEC, Fact.NUM_SAMPLES, Fact.LOCAL_TRAINING})
    losses: ClassVar[tuple[str, ...]] = (CROSS_ENTROPY, NLL_ON_LOGITS)
    changes: ClassVar[str] = "parameters"

    scale: float = setting(0.95, "positive weights over negative ones; below 1 keeps units silent", above=0)
    active: float | None = setting(
        None, "share of public samples that a unit is to answer to; sets the scale where it is given", above=0, high=1
    )
    sigma: float = setting(0.5, "standard deviation behind the weights", above=0)
    secret: int = setting(0, "the server's own seed, behind the weights")

    def prepare(self, model: nn.Module, data: DataSpec, public: Batch | None = None) -> nn.Module:
        like = next(model.parameters())
        example = torch.full((1, *data.shape), 0.5, device=like.device, dtype=like.dtype)
        layer, (unit, shift) = _first_layer(model, example)
        sent = copy.deepcopy(model)
        if runs_one_by_one(model):
            run_one_by_one(sent)
        linear = sent.get_submodule(layer)
        assert isinstance(linear, nn.Linear)
        rows = self._rows(linear.out_features, linear.in_features, public).to(like)
        with torch.no_grad():
            linear.weight.copy_(rows / unit)
            linear.bias.copy_(-linear.weight @ shift)
        return sent

    def _rows(self, units: int, size: int, public: Batch | None) -> Tensor:
        """(units, d): negative numbers and, scaled and shuffled, their opposites, at places drawn for every row."""
        draw = generator(self.secret, "trap-weights")
        negative = -(self.sigma * torch.randn(units, size - size // 2, generator=draw, dtype=torch.float64)).abs()
        shuffled = torch.rand(units, negative.shape[1], generator=draw).argsort(1)[:, : size // 2]
        positive = -negative.gather(1, shuffled)
        place = torch.rand(units, size, generator=draw).argsort(1)
        below, above = negative.new_zeros(2, units, size)
        below.scatter_(1, place[:, : negative.shape[1]], negative)
        above.scatter_(1, place[:, negative.shape[1] :], positive)
        return torch.add(below, above, alpha=self._scale(below, above, public))

    def _scale(self, below: Tensor, above: Tensor, public: Batch | None) -> float:
        if self.active is None:
            return self.scale
        if public is None:
            raise NotApplicable("trap-weights: active is measured on public samples, and there are none; use scale")
        samples = public.inputs[0].flatten(1).double().cpu()
        # A unit answers where scale x above + below > 0: the scale at which that happens for a share of all pairs.
        needed = (-(samples @ below.T) / (samples @ above.T).clamp_min(1e-12)).flatten()
        return float(needed.kthvalue(max(1, round(self.active * len(needed)))).values)

    def solve(self, observation: Observation, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:  # noqa: ARG002
        began = time.perf_counter()
        data: DataSpec = observation.fact(Fact.INPUT_SPEC)
        samples: int = observation.fact(Fact.NUM_SAMPLES)
        local: LocalTraining = observation.fact(Fact.LOCAL_TRAINING)
        layer, (unit, shift) = _first_layer(observation.model, example_input(observation))
        gradient = observed_gradient(observation)
        weight, bias = gradient[f"{layer}.weight"], gradient[f"{layer}.bias"]  # (T, M, d), (T, M)
        coarse = _coarseness(observation.model.get_submodule(layer), local, samples)
        hit = bias.abs() > coarse
        ratio = (weight / torch.where(hit, bias, torch.inf)[..., None] - shift) / unit  # (T, M, d)
        fits = hit & in_range(ratio)
        agreed = agreement(ratio, fits, coarse / bias.abs().clamp_min(1e-30))  # (T, M, M)
        votes = agreed.sum(2)
        kept = fits & strongest_of_each(agreed, bias)
        alone = None
        if local.kind == "fedsgd" or local_steps(samples, local) == 1:
            shaped = ratio.reshape(*bias.shape, *data.shape)
            alone = alone_in_unit(observation.model, layer, shaped, bias, coarse, samples, local)
        certified = kept & (votes > 1 if alone is None else alone)
        strength = bias.abs() / bias.abs().amax(1, keepdim=True).clamp_min(1e-30)
        sure = torch.where(kept, certified * votes.shape[1] + votes + 0.5 * strength, -1.0)
        best = sure.topk(min(samples, sure.shape[1]), dim=1).indices  # (T, up to N)
        trials = torch.arange(len(best), device=best.device)[:, None]
        claims = torch.where(kept[trials, best][..., None], ratio[trials, best], BLANK)
        rest = samples - claims.shape[1]
        claims = nn.functional.pad(claims, (0, 0, 0, rest), value=BLANK)
        claimed = nn.functional.pad(kept[trials, best], (0, rest), value=False)
        proven = certified.sum(1).clamp_max(samples)
        notes = zip(hit.sum(1).tolist(), kept.sum(1).tolist(), proven.tolist(), strict=True)
        ones = torch.ones(len(claims), dtype=torch.long)
        return Reconstruction(
            claims.reshape(len(claims), samples, *data.shape),
            _labels(observation, local),
            1 - proven.to(claims) / samples,
            ones,
            0 * ones,
            time.perf_counter() - began,
            notes=tuple(
                f"{rows} of {bias.shape[1]} rows hit, {different} candidates, {certain} of {samples} certified"
                for rows, different, certain in notes
            ),
            certified=None if alone is None else proven,
            claimed=claimed,
        )


def _first_layer(model: nn.Module, example: Tensor) -> tuple[str, _Affine]:
    """Name of the trapped layer, and what is done to inputs in front of it: z = unit x + shift."""
    layer, affine = first_linear(model, example), input_affine(model, example)
    if layer is None or affine is None:
        named = next((f"{n!r} ({type(m).__name__})" for n, m in model.named_modules() if _has_own(m)), "none")
        raise NotApplicable(
            f"trap-weights needs nn.Linear on the flattened input as the first layer with weights, and the first "
            f"here is {named}; use imprint"
        )
    linear = model.get_submodule(layer)
    if linear.bias is None:
        raise NotApplicable(f"trap-weights needs a bias in {layer!r}: without it inputs are known only up to scale")
    if not all(p.requires_grad for p in linear.parameters()):
        raise NotApplicable(f"trap-weights needs the gradient of {layer!r}, which is frozen or not shared")
    if not _silent_below_zero(model, linear, example):
        raise NotApplicable(
            f"trap-weights needs a ReLU behind {layer!r}, so that units are silent below zero, and these are not"
        )
    return layer, affine


def _has_own(module: nn.Module) -> bool:
    return any(True for _ in module.parameters(recurse=False))


def _silent_below_zero(model: nn.Module, linear: nn.Module, example: Tensor) -> bool:
    """Does the network answer the same however far below zero the layer's units are?"""
    answers = []
    training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        for value in (-1.0, -2.0):

            def instead(_: nn.Module, __: object, out: Tensor, value: float = value) -> Tensor:
                return torch.full_like(out, value)

            hook = linear.register_forward_hook(instead)
            try:
                with torch.no_grad():
                    answers.append(model(example))
            finally:
                hook.remove()
    finally:
        for module, mode in training.items():
            module.training = mode
    return bool(torch.equal(*answers))


def _coarseness(linear: nn.Module, local: LocalTraining, samples: int) -> float:
    """How far off an entry of the gradient may be because weights were rounded before they were subtracted."""
    if local.kind == "fedsgd":
        return 0.0
    assert isinstance(linear, nn.Linear)
    precision = torch.finfo(linear.weight.dtype).eps / (local.lr * local_steps(samples, local))
    return precision * float(linear.weight.detach().abs().mean())


def _labels(observation: Observation, local: LocalTraining) -> Tensor | None:
    """The labels (T, N) by the rules of cross-entropy, where the last layer can be read; in no particular order."""
    if local.loss != CROSS_ENTROPY:
        return None
    try:
        return inferred_labels(observation)
    except NotApplicable:
        return None
