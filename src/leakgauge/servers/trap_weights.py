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
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from leakgauge.client.fedavg import local_steps
from leakgauge.engine.gradients import run_one_by_one, runs_one_by_one, working_model
from leakgauge.engine.randomness import generator
from leakgauge.errors import NotApplicable
from leakgauge.matching.updates import example_input, observed_gradient
from leakgauge.models.structure import first_linear, input_affine
from leakgauge.servers._first_layer import PASS, Candidates, FirstLayerServer, claim, coarseness, explained, in_range
from leakgauge.settings import setting
from leakgauge.types import Batch, Client, DataSpec, Fact, Observation, Progress, Reconstruction

_SMOOTH = 256  # in units of the precision: where the candidate itself is all that the network sees
_DIRECTIONS = 32  # candidates are compared along these: their distance to a tenth, at any size of the pictures
_ROUNDING = 64  # in units of the precision: by how much the ratios of two rows over one sample may differ


@dataclass(frozen=True)
class TrapWeights(FirstLayerServer):
    """Trap weights in a first layer of Linear and ReLU.

    Example: `leakgauge attack trap-weights --model mlp --batch-size 8 --threat-model malicious-parameters`
    """

    name: ClassVar[str] = "trap-weights"
    summary: ClassVar[str] = "first-layer weights that fire for few samples, so that single rows give them away"
    paper: ClassVar[str] = "Boenisch et al. 2023, When the Curious Abandon Honesty, EuroS&P"
    cost: ClassVar[float] = 21.0

    scale: float = setting(0.95, "positive weights over negative ones; below 1 keeps units silent", above=0)
    active: float | None = setting(
        None, "share of public samples that a unit is to answer to; sets the scale where it is given", above=0, high=1
    )
    sigma: float = setting(0.5, "standard deviation behind the weights", above=0)
    secret: int = setting(0, "the server's own seed, behind the weights")

    def prepare(self, model: nn.Module, data: DataSpec, public: Batch | None = None) -> nn.Module:
        example = torch.full((1, *data.shape), 0.5).to(next(model.parameters()))
        layer, linear, unit, shift = _first_layer(model, example)
        sent = copy.deepcopy(model)
        if runs_one_by_one(model):
            run_one_by_one(sent)
        rows = self._rows(linear.out_features, linear.in_features, public).to(example) / unit
        with torch.no_grad():
            sent.get_submodule(layer).get_parameter("weight").copy_(rows)
            sent.get_submodule(layer).get_parameter("bias").copy_(-rows @ shift)
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
        samples: int = observation.fact(Fact.NUM_SAMPLES)
        local: Client = observation.fact(Fact.LOCAL_TRAINING)
        layer, linear, unit, shift = _first_layer(observation.model, example_input(observation))
        gradient = observed_gradient(observation)
        weight, bias = gradient[f"{layer}.weight"], gradient[f"{layer}.bias"]  # (T, M, d), (T, M)
        coarse = coarseness(linear.weight.detach().abs().mean(), local, samples)
        hit = bias.abs() > coarse
        ratio = (weight / torch.where(hit, bias, torch.inf)[..., None] - shift) / unit  # (T, M, d)
        fits = hit & in_range(ratio)
        agreed = agreement(ratio, fits, coarse / bias.abs().clamp_min(1e-30))  # (T, M, M)
        votes = agreed.sum(2)
        kept = fits & strongest_of_each(agreed, bias)
        alone = None
        if local.kind == "fedsgd" or local_steps(samples, local) == 1:
            alone = _alone_in_unit(observation, layer, ratio, bias, coarse)
        certified = kept & (votes > 1 if alone is None else alone)
        strength = bias.abs() / bias.abs().amax(1, keepdim=True).clamp_min(1e-30)
        sure = certified * votes.shape[1] + votes + 0.5 * strength
        found = Candidates(ratio, kept, sure, certified.sum(1), alone is not None)
        numbers = torch.stack((hit.sum(1), kept.sum(1), found.proven.clamp_max(samples)), 1).tolist()
        notes = (
            f"{rows} of {bias.shape[1]} rows hit, {different} candidates, {certain} of {samples} certified"
            for rows, different, certain in numbers
        )
        return claim(found, observation, notes, began)


def _first_layer(model: nn.Module, example: Tensor) -> tuple[str, nn.Linear, Tensor, Tensor]:
    """Name and module of the trapped layer, and what is done to inputs in front of it: z = unit x + shift."""
    layer, affine = first_linear(model, example), input_affine(model, example)
    if layer is None or affine is None:
        own = ((n, m) for n, m in model.named_modules() if [*m.parameters(recurse=False)])
        named = next((f"{name!r} ({type(module).__name__})" for name, module in own), "none")
        raise NotApplicable(
            f"trap-weights needs nn.Linear on the flattened input as the first layer with weights, and the first "
            f"here is {named}; use imprint"
        )
    linear = model.get_submodule(layer)
    assert isinstance(linear, nn.Linear)
    if linear.bias is None:
        raise NotApplicable(f"trap-weights needs a bias in {layer!r}: without it inputs are known only up to scale")
    if not all(p.requires_grad for p in linear.parameters()):
        raise NotApplicable(f"trap-weights needs the gradient of {layer!r}, which is frozen or not shared")
    # Behind a ReLU the network answers the same however far below zero the layer's units are.
    worker = working_model(model, "eval")
    answers = []
    for value in (-1.0, -2.0):
        hook = worker.get_submodule(layer).register_forward_hook(lambda _, __, out, v=value: torch.full_like(out, v))
        with torch.no_grad():
            answers.append(worker(example))
        hook.remove()
    if not torch.equal(*answers):
        raise NotApplicable(
            f"trap-weights needs a ReLU behind {layer!r}, so that units are silent below zero, and these are not"
        )
    return layer, linear, *affine


def _alone_in_unit(observation: Observation, layer: str, ratio: Tensor, bias: Tensor, coarse: float) -> Tensor | None:
    """Which ratios (T, M, d), one of each unit, explain the units' bias gradients (T, M) by themselves."""
    net = working_model(observation.model, observation.fact(Fact.LOCAL_TRAINING).batchnorm)
    flat, units = ratio.reshape(-1, *observation.fact(Fact.INPUT_SPEC).shape), ratio.shape[1]
    added: list[Tensor] = []  # to the layer's output, so that its derivative is the bias's for every sample

    def passes() -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        for part in torch.split(torch.arange(len(flat), device=flat.device), PASS):
            added[:] = [flat.new_zeros(len(part), units, requires_grad=True)]
            yield flat[part], added[0], nn.functional.one_hot(part % units, units).to(flat)

    hook = net.get_submodule(layer).register_forward_hook(lambda _, __, out: out + added[0])
    tolerance = _SMOOTH * torch.finfo(bias.dtype).eps  # many mixtures are tried: a wide one would let some pass
    try:
        return explained(net, passes(), bias, tolerance, bias.new_full((1, 1), coarse), observation)
    finally:
        hook.remove()


def agreement(candidates: Tensor, valid: Tensor, error: Tensor) -> Tensor:
    """(T, M, M) bool: which of the candidates (T, M, d) that are valid (T, M) are equal up to rounding.

    Several rows that give one and the same ratio were each left by one sample. `error` (T, M) is by how much an entry
    of a candidate may be off besides its own precision.
    """
    size = candidates.shape[2]
    directions = torch.randn(size, _DIRECTIONS, generator=generator(0, "agreement"), dtype=torch.float64)
    seen = torch.where(valid[..., None], candidates, 0.0) @ directions.to(candidates)  # (T, M, 32)
    distance = torch.cdist(seen, seen, compute_mode="donot_use_mm_for_euclid_dist")
    length = seen.norm(dim=2)
    allowed = _ROUNDING * torch.finfo(candidates.dtype).eps * torch.maximum(length[:, :, None], length[:, None])
    allowed = allowed + (size * _DIRECTIONS) ** 0.5 * (error[:, :, None] + error[:, None])
    near: Tensor = distance <= allowed
    return near & valid[:, :, None] & valid[:, None]


def strongest_of_each(agreed: Tensor, strength: Tensor) -> Tensor:
    """(T, M) bool: no candidate that agrees with it has a larger |strength| (T, M), or stands earlier at the same."""
    size = strength.abs()
    earlier = torch.ones_like(agreed[0]).tril(-1)  # (M, M): column before row
    stronger = (size[:, None] > size[:, :, None]) | ((size[:, None] == size[:, :, None]) & earlier)
    return ~(agreed & stronger).any(2)
