"""Gradients of samples that the attacker makes up, in float64: what they show of how a network reads its input."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from leakgauge.engine.gradients import working_model
from leakgauge.engine.randomness import generator
from leakgauge.errors import NotApplicable
from leakgauge.matching.updates import example_input
from leakgauge.types import Fact, Observation

_START = 0.1  # size of what stands in for tensors of zeros, which hide what is behind them
_SHAKEN = 0.2  # relative: how far weights are moved for more equations than there are classes
_LOW, _HIGH = 0.25, 0.75  # plain samples that give slope and shift
_FLAT = 1e-7  # a slope this small beside the largest is none: padding, or a class token
_EXACT = 1e-6  # how far a read value may be off on a sample of noise, relative to the largest

Values = Callable[[Tensor], Tensor | None]  # samples (K, *shape) -> what is read of each (K, M); None if nothing is


@dataclass(frozen=True)
class InputMap:
    """Which entry of what is read holds which number of the sample: entry m is slope[m] * sample[index[m]] + shift[m].

    An index of -1 reads nothing.
    """

    index: Tensor  # (M,)
    slope: Tensor  # (M,)
    shift: Tensor  # (M,)
    numbers: int  # in a sample

    @property
    def share(self) -> float:
        """Of the sample's numbers: how many are read by any entry?"""
        return float((torch.bincount(self.index + 1, minlength=self.numbers + 1)[1:] > 0).double().mean())

    def sample(self, values: Tensor) -> Tensor:
        """(..., M) -> (..., numbers): least squares where entries overlap, zero where nothing is read."""
        weighed = (values - self.shift) * self.slope
        total = values.new_zeros(*values.shape[:-1], self.numbers + 1).index_add_(-1, self.index + 1, weighed)
        size = self.slope.new_zeros(self.numbers + 1).index_add_(0, self.index + 1, self.slope**2)
        return (total / torch.where(size > 0, size, 1))[..., 1:]

    def values(self, samples: Tensor) -> Tensor:
        """(..., numbers) -> (..., M)."""
        read = nn.functional.pad(samples, (1, 0))[..., self.index + 1]
        return self.slope * read + self.shift


@dataclass(frozen=True)
class Probing:
    """The network as the client's step sees it, in float64, and which of its tensors are shared."""

    net: nn.Module
    shapes: dict[str, tuple[int, ...]]  # name -> shape, of what the update holds
    shape: tuple[int, ...]  # of a sample

    @property
    def like(self) -> Tensor:
        return next(self.net.parameters())

    def noise(self, role: str) -> Tensor:
        """A sample (*shape) of uniform noise."""
        return torch.rand(self.shape, generator=generator(0, role)).to(self.like)

    def gradients(self, samples: Tensor, names: Iterable[str], pulls: int = 1) -> list[dict[str, Tensor]]:
        """For each sample (K, *shape) the gradients (pulls, *parameter) of so many sums of its logits.

        Beyond as many sums as there are classes the weights are moved: each stays another equation on the same sample.
        """
        wanted = tuple(dict.fromkeys(names))
        rows: list[list[tuple[Tensor, ...]]] = [[] for _ in samples]
        random = generator(0, "probing")
        net, done = self.net, 0
        while done < pulls:
            parameters = dict(net.named_parameters())
            tensors = [parameters[name] for name in wanted]
            at_once = 0
            for row, sample in zip(rows, samples, strict=True):
                with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
                    logits = net(sample[None])
                at_once = min(pulls - done, logits.numel())
                for k in range(at_once):
                    pull = torch.randn(logits.shape, generator=generator(0, f"pull/{done + k}")).to(logits)
                    more = k + 1 < at_once
                    row.append(torch.autograd.grad(logits, tensors, pull, retain_graph=more, materialize_grads=True))
            done += at_once
            if done < pulls:
                net = self._moved(random)
        return [{name: torch.stack([g[i] for g in row]) for i, name in enumerate(wanted)} for row in rows]

    def _moved(self, random: torch.Generator) -> nn.Module:
        """Another network that reads its input alike: all shared weights moved."""
        net = copy.deepcopy(self.net)
        with torch.no_grad():
            for name, weight in net.named_parameters():
                if name in self.shapes:
                    noise = torch.randn(weight.shape, generator=random).to(weight)
                    weight.add_(_SHAKEN * weight.square().mean().sqrt() * noise)
        return net

    def input_map(self, values: Values) -> InputMap | None:
        """The map behind `values`, or None where these are anything but numbers of the sample, scaled and shifted.

        Found by trying, and not by looking for layers: whatever flattens, cuts into patches, permutes, pads or
        normalises by constants on the way is in the map.
        """
        numbers, noise = math.prod(self.shape), self.noise("input-map").flatten()
        ramp = torch.arange(1, numbers + 1, device=noise.device, dtype=noise.dtype) / (numbers + 1)
        plain = torch.ones_like(ramp)
        read = values(torch.stack((_LOW * plain, _HIGH * plain, ramp, noise)).reshape(4, *self.shape))
        if read is None or not bool(torch.isfinite(read).all()):
            return None
        low, high, ranked, tried = read
        slope = (high - low) / (_HIGH - _LOW)
        there = slope.abs() > _FLAT * slope.abs().amax()
        if not bool(there.any()):
            return None
        slope = torch.where(there, slope, 0)
        shift = low - _LOW * slope
        place = (ranked - shift) / torch.where(there, slope, 1) * (numbers + 1)
        index = torch.where(there, place.round().long() - 1, -1)
        if not bool(((index >= 0) & (index < numbers))[there].all()):
            return None
        found = InputMap(index, slope, shift, numbers)
        off = (found.values(noise) - tried).abs().amax()
        return found if bool(off <= _EXACT * tried.abs().amax()) else None


def as_product(gradient: Tensor, inputs_last: bool) -> Tensor:
    """(T, *parameter) -> (T, out, in)"""
    return gradient.flatten(2) if inputs_last else gradient.flatten(1, -2).mT


def probing_of(observation: Observation) -> Probing:
    """A copy to try samples on. Tensors of zeros hide what is behind them (adapters at their start): filled at random.

    Raises NotApplicable where the network does not run on one sample in double precision.
    """
    net = working_model(observation.model, observation.fact(Fact.LOCAL_TRAINING).batchnorm).double()
    random, tensors = generator(0, "zeros"), observation.update.tensors
    with torch.no_grad():
        for name, weight in net.named_parameters():
            weight.requires_grad_(name in tensors)
            if not bool(weight.any()):
                weight.copy_(_START * torch.randn(weight.shape, generator=random).to(weight))
    shapes = {name: tuple(weight.shape) for name, weight in net.named_parameters() if name in tensors}
    probing = Probing(net, shapes, observation.fact(Fact.INPUT_SPEC).shape)
    try:
        probing.gradients(example_input(observation).to(probing.like), tuple(shapes)[:1])
    except (RuntimeError, ValueError) as error:
        why = str(error).splitlines()[0]
        raise NotApplicable(f"the network does not run on one sample in double precision ({why}); use dlg") from error
    return probing
