"""What a tensor's gradient reads of a sample: which entry holds which number of the input, how scaled and shifted.

Found by trying, on samples that the attacker makes up, and not by looking for layers: whatever flattens, cuts into
patches, permutes, pads or normalises by constants on the way is in the map.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.engine.randomness import generator

_LOW, _HIGH = 0.25, 0.75  # plain samples that give slope and shift
_FLAT = 1e-7  # a slope this small beside the largest is none: padding, or a class token
_EXACT = 1e-6  # how far a read value may be off on a sample of noise, relative to the largest

Values = Callable[[Tensor], Tensor | None]  # samples (K, *shape) -> what is read of each (K, M); None if nothing is


@dataclass(frozen=True)
class InputMap:
    """Entry m of what is read is slope[m] * sample[index[m]] + shift[m]; an index of -1 reads nothing."""

    index: Tensor  # (M,)
    slope: Tensor  # (M,)
    shift: Tensor  # (M,)
    numbers: int  # in a sample

    @property
    def reads(self) -> Tensor:
        """(numbers,) bool: is this number of the sample read by any entry?"""
        return torch.bincount(self.index + 1, minlength=self.numbers + 1)[1:] > 0

    def sample(self, values: Tensor) -> Tensor:
        """(..., M) -> (..., numbers): least squares where entries overlap, zero where nothing is read."""
        weighed = (values - self.shift) * self.slope
        total = values.new_zeros(*values.shape[:-1], self.numbers + 1).index_add_(-1, self.index + 1, weighed)
        size = self.slope.new_zeros(self.numbers + 1).index_add_(0, self.index + 1, self.slope**2)
        return (total / torch.where(size > 0, size, 1))[..., 1:]

    def values(self, samples: Tensor) -> Tensor:
        """(..., numbers) -> (..., M)."""
        read = torch.nn.functional.pad(samples, (1, 0))[..., self.index + 1]
        return self.slope * read + self.shift


def input_map(values: Values, shape: tuple[int, ...], like: Tensor) -> InputMap | None:
    """The map behind `values`, or None where these are anything but numbers of the sample, scaled and shifted."""
    numbers = math.prod(shape)
    ramp = torch.arange(1, numbers + 1, device=like.device, dtype=like.dtype) / (numbers + 1)
    noise = torch.rand(numbers, generator=generator(0, "input-map")).to(like)
    plain = torch.ones_like(ramp)
    read = values(torch.stack((_LOW * plain, _HIGH * plain, ramp, noise)).reshape(4, *shape))
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
