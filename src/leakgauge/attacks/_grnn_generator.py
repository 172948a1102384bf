"""GRNN's generator, one of its own for every trial: from fixed noise to pictures and labels.

Image branch: a transposed convolution to 4 x 4, then blocks of [enlarge by two, Conv k3 p1, BatchNorm, GLU] that halve
the channels, the last of which gives the picture, and a sigmoid. Label branch: one dense layer. Parameters have the
shapes and the initial distribution of the layers of `torch.nn`; a trial's parameters are one row of a matrix.

The picture's side is a power of two; for other shapes the next one is generated and its middle cut out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.engine.per_trial_layers import batch_norm, dense, doubled_convolution, gated, unfolded
from leakgauge.engine.randomness import normal, uniform
from leakgauge.errors import NotApplicable
from leakgauge.types import DataSpec

_FIRST = 4  # pixels behind the transposed convolution
_NARROWEST = 32  # channels that the last block sees
_LARGEST = 256


@dataclass(frozen=True)
class Generator:
    """The network without its weights: `noise` is each trial's fixed input, `z` in a call holds the weights."""

    noise: Tensor  # (T, N, d)
    picture: tuple[int, int, int]  # (C, H, W)
    classes: int  # 0 where labels are known: there is no label branch

    @property
    def blocks(self) -> int:
        """Those that enlarge, the last one included: 3 for 32 px."""
        return (_side(self.picture) // _FIRST).bit_length() - 1

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Parameters by name, without the trials axis."""
        width, channels = self.noise.shape[2], _NARROWEST * 2 ** (self.blocks - 1)
        found: dict[str, tuple[int, ...]] = {
            "seed.weight": (width, 2 * channels, _FIRST, _FIRST),
            "seed.bias": (2 * channels,),
        }
        for block in range(self.blocks):
            into = self.picture[0] if block == self.blocks - 1 else channels // 2
            found[f"block{block}.conv.weight"] = (2 * into, channels, 3, 3)
            found[f"block{block}.norm.weight"] = found[f"block{block}.norm.bias"] = (2 * into,)
            channels = into
        if self.classes:
            found |= {"label.weight": (self.classes, width), "label.bias": (self.classes,)}
        return found

    @property
    def width(self) -> int:
        """Numbers in one trial's z."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def noise_of(self, seeds: Sequence[int]) -> Tensor:
        """The noise of some of the trials, by their seeds: (A, N, d)."""
        return draw_noise(seeds, self.noise.shape[1], self.noise.shape[2])

    def start(self, seeds: Sequence[int], role: str) -> Tensor:
        """Freshly initialised parameters (A, D), distributed as `torch.nn` has them."""
        bound, centre = (torch.cat(parts) for parts in zip(*self._initial(), strict=True))
        return centre + bound * (2 * uniform(seeds, role, (self.width,)) - 1)

    def _initial(self) -> list[tuple[Tensor, Tensor]]:
        """Half the width and the middle of each parameter's uniform distribution, flat."""
        shapes, found = self.shapes, []
        for name, shape in shapes.items():
            layer = name.rpartition(".")[0]
            fan_in = math.prod(shapes[f"{layer}.weight"][1:])  # torch counts the second axis, transposed or not
            fixed = layer.endswith("norm")
            bound = 0.0 if fixed else fan_in**-0.5
            centre = 1.0 if fixed and name.endswith("weight") else 0.0
            found.append((torch.full((math.prod(shape),), bound), torch.full((math.prod(shape),), centre)))
        return found

    def __call__(self, z: Tensor, trials: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Weights (A, D) of rows that belong to `trials` (A,): pictures (A, N, C, H, W), logits (A, N, K) or None."""
        noise = self.noise if trials is None else self.noise[trials]
        weights = unpacked(z, self.shapes)
        pictures = self.painted(gated(unfolded(noise, weights["seed.weight"], weights["seed.bias"])), weights)
        if not self.classes:
            return pictures, None
        return pictures, dense(noise, weights["label.weight"], weights["label.bias"])

    def painted(self, x: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
        """The blocks that enlarge: (A, N, 4, 4, 32 * 2^n) -> (A, N, C, H, W)."""
        for block in range(self.blocks):
            x = doubled_convolution(x, weights[f"block{block}.conv.weight"])
            x = gated(batch_norm(x, weights[f"block{block}.norm.weight"], weights[f"block{block}.norm.bias"]))
        return _middle(torch.sigmoid(x).movedim(-1, 2), self.picture)


def draw_noise(seeds: Sequence[int], samples: int, width: int) -> Tensor:
    """Each trial's fixed input, (T, N, d)."""
    return normal(seeds, "noise", (samples, width))


def unpacked(z: Tensor, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Rows of numbers (A, D) as the tensors they are, by name."""
    parts = zip(shapes.items(), z.split_with_sizes([math.prod(s) for s in shapes.values()], 1), strict=True)
    return {name: part.reshape(len(z), *shape) for (name, shape), part in parts}


def picture_shape(data: DataSpec) -> tuple[int, int, int]:
    """(C, H, W) of what is to be generated, if it can be."""
    if len(data.shape) != 3:
        raise NotApplicable(f"grnn generates pictures, the samples are shaped {data.shape}; use dlg")
    channels, height, width = data.shape
    if _side((channels, height, width)) > _LARGEST:
        raise NotApplicable(f"grnn generates pictures of up to {_LARGEST} px, these are {height} x {width}; use dlg")
    return channels, height, width


def _side(picture: tuple[int, int, int]) -> int:
    """The smallest power of two, from 8, that holds the picture."""
    return max(2 * _FIRST, 1 << (max(picture[1:]) - 1).bit_length())


def _middle(pictures: Tensor, picture: tuple[int, int, int]) -> Tensor:
    """The middle of (A, N, C, S, S) pictures, shaped (C, H, W)."""
    top, left = ((pictures.shape[-1] - side) // 2 for side in picture[1:])
    return pictures[..., top : top + picture[1], left : left + picture[2]]
