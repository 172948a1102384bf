"""A tensor whose gradient is one product for one sample: what came back times what went in, the sample itself.

That is so of the weights of any affine map that reads the sample once and whole: a linear layer with or without a
bias, a low-rank adapter beside it, a convolution as large as the picture. It is found by the rank of the gradient on
made-up samples, not by the layer's type.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.attacks._parts.input_map import InputMap, input_map
from leakgauge.attacks._parts.probing import Probing
from leakgauge.engine.randomness import generator

_RANK_ONE = 1e-8  # share of a gradient's length beyond one product up to which it is one, in float64
_LEAST = 0.5  # of a sample's numbers that have to be read
_TINY = 1e-300


@dataclass(frozen=True)
class FirstMap:
    """Where the product is, and how it reads. Without `returned` the map is known up to a common factor."""

    name: str  # of the tensor
    inputs_last: bool  # is it (out, in...), or (in..., out) as in x @ W?
    returned: str | None  # a tensor whose gradient is the product's other factor, a bias: gives the sample's length
    map: InputMap

    def product(self, gradient: Mapping[str, Tensor]) -> Tensor:
        """(T, out, in)"""
        return as_product(gradient[self.name], self.inputs_last)

    def direction(self, gradient: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """What went in (T, in), at length one unless the other factor is known, and what is no product (T,), a share."""
        product = self.product(gradient)
        if self.returned is None:
            return leading(product)
        back = gradient[self.returned].flatten(1)[..., None]  # (T, out, 1)
        entered = (product * back).sum(1) / (back**2).sum(1).clamp_min(_TINY)
        return entered, beyond(product, back[..., 0], entered)


def possible_first_maps(shapes: Mapping[str, tuple[int, ...]], numbers: int) -> list[tuple[str, bool]]:
    """Tensors with room for a sample on one side, and which side; no gradient is needed."""
    found = []
    for name, shape in shapes.items():
        if len(shape) < 2:
            continue
        if math.prod(shape[1:]) >= _LEAST * numbers:
            found.append((name, True))
        if math.prod(shape[:-1]) >= _LEAST * numbers:
            found.append((name, False))
    return found


def first_map(probing: Probing) -> FirstMap | None:
    """The tensor that reads the sample whole; the one with its other factor beside it where there are several."""
    numbers = math.prod(probing.shape)
    possible = possible_first_maps(probing.shapes, numbers)
    if not possible:
        return None
    sample = torch.rand((1, *probing.shape), generator=generator(0, "first-map")).to(probing.like)
    (seen,) = probing.gradients(sample, [*dict(possible), *_vectors(probing)])
    found = []
    for name, last in possible:
        product = as_product(seen[name], last)
        if not bool(product.any()) or float(leading(product)[1]) > _RANK_ONE:
            continue
        read = _with_bias(probing, name, last, seen) or _without(probing, name, last)
        if read is not None and float(read.map.reads.double().mean()) >= _LEAST:
            found.append(read)
    return max(found, key=lambda f: (float(f.map.reads.double().mean()), f.returned is not None), default=None)


def as_product(gradient: Tensor, inputs_last: bool) -> Tensor:
    """(T, *parameter) -> (T, out, in)"""
    return gradient.flatten(2) if inputs_last else gradient.flatten(1, -2).mT


def leading(product: Tensor) -> tuple[Tensor, Tensor]:
    """The right factor (T, in) at length one of the nearest product, and the share (T,) that is no product.

    By a few rounds of the power method from the longest row: exact at once where there is one product.
    """
    longest = product.square().sum(2).argmax(1)
    right = product[torch.arange(len(product)), longest]  # (T, in)
    for _ in range(30):
        right = right / right.norm(dim=1, keepdim=True).clamp_min(_TINY)
        left = torch.einsum("toi,ti->to", product, right)
        right = torch.einsum("toi,to->ti", product, left)
    right = right / right.norm(dim=1, keepdim=True).clamp_min(_TINY)
    left = torch.einsum("toi,ti->to", product, right)
    return right, beyond(product, left, right)


def beyond(product: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """(T,) how much of `product` (T, out, in) its factors leave over, relative to its length."""
    rest = product - left[..., None] * right[:, None]
    return rest.flatten(1).norm(dim=1) / product.flatten(1).norm(dim=1).clamp_min(_TINY)


def _vectors(probing: Probing) -> list[str]:
    return [name for name, shape in probing.shapes.items() if math.prod(shape) == max(shape, default=0)]


def _with_bias(probing: Probing, name: str, last: bool, seen: Mapping[str, Tensor]) -> FirstMap | None:
    """With a tensor beside it whose gradient is the product's other factor, so that nothing is missing."""
    product = as_product(seen[name], last)
    for vector in _vectors(probing):
        back = seen[vector].flatten(1)
        if back.shape[1] != product.shape[1] or not bool(back.any()):
            continue
        entered = (product * back[..., None]).sum(1) / (back**2).sum(1, keepdim=True)
        if float(beyond(product, back, entered)) > _RANK_ONE:
            continue

        def values(samples: Tensor, vector: str = vector) -> Tensor | None:
            own = probing.gradients(samples, (name, vector))
            rows = []
            for gradient in own:
                back = gradient[vector].flatten(1)
                entered = (as_product(gradient[name], last) * back[..., None]).sum(1)
                rows.append(entered[0] / (back**2).sum().clamp_min(_TINY))
            return torch.stack(rows)

        if (found := input_map(values, probing.shape, probing.like)) is not None:
            return FirstMap(name, last, vector, found)
    return None


def _without(probing: Probing, name: str, last: bool) -> FirstMap | None:
    """Up to a common factor: directions alone, put to scale by what lies half-way between two samples."""
    start = torch.rand(probing.shape, generator=generator(0, "first-map/start")).to(probing.like)

    def directions(samples: Tensor) -> Tensor:
        return torch.cat([leading(as_product(g[name], last))[0] for g in probing.gradients(samples, (name,))])

    (first,) = directions(start[None])

    def values(samples: Tensor) -> Tensor | None:
        ends, middles = directions(samples), directions((samples + start) / 2)
        rows = []
        for end, middle in zip(ends, middles, strict=True):
            # What goes in is affine: first + a * end = 2 b * middle for one a and one b.
            factors = torch.linalg.lstsq(torch.stack((-end, 2 * middle), 1), first[:, None]).solution[:, 0]
            rows.append(factors[0] * end)
        return torch.stack(rows)

    found = input_map(values, probing.shape, probing.like)
    return None if found is None else FirstMap(name, last, None, found)
