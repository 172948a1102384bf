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

from leakgauge.attacks._input_map import InputMap, input_map
from leakgauge.engine.randomness import generator
from leakgauge.matching.probing import Probing

_RANK_ONE = 1e-8  # share of a gradient's length beyond one product up to which it is one, in float64
_LEAST, _MOST = 0.5, 4.0  # numbers that are read, beside those of a sample
_ROWS = 8
_ALIKE = 1e-6  # from which cosine, beside one, two samples go in alike
_PARALLEL = 1e-7  # how far two of length one may be apart, in float64
_ROUNDS = 30  # of the power method, where noise lies over the product
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
        """What went in (T, in), at length one unless the other factor is known; and what is left, a share."""
        product = self.product(gradient)
        if self.returned is None:
            return leading(product)
        back = gradient[self.returned].flatten(1)[..., None]  # (T, out, 1)
        entered: Tensor = (product * back).sum(1) / (back**2).sum(1).clamp_min(_TINY)
        return entered, beyond(product, back[..., 0], entered)


def possible_first_maps(shapes: Mapping[str, tuple[int, ...]], numbers: int) -> list[tuple[str, bool]]:
    """Tensors with room for a sample on one side, and which side; no gradient is needed."""
    found = []
    for name, shape in shapes.items():
        if len(shape) < 2:
            continue
        for last, read in ((True, math.prod(shape[1:])), (False, math.prod(shape[:-1]))):
            if _LEAST * numbers <= read <= _MOST * numbers:
                found.append((name, last))
    return found


def first_map(probing: Probing) -> FirstMap | None:
    """The tensor that reads the sample whole; the one with its other factor beside it where there are several."""
    possible = possible_first_maps(probing.shapes, math.prod(probing.shape))
    if not possible:
        return None
    sample = torch.rand((1, *probing.shape), generator=generator(0, "first-map")).to(probing.like)
    (seen,) = probing.gradients(sample, [*dict(possible), *_vectors(probing)])
    found = []
    for name, last in possible:
        product = as_product(seen[name], last)
        some = product[:, :: max(1, product.shape[1] // _ROWS)]  # most tensors are told by a few rows
        if float(leading(some, 1)[1]) > _RANK_ONE:
            continue
        right, left_over = leading(product, 1)
        if float(left_over) > _RANK_ONE or not bool(product.any()):
            continue
        directions = _Directions(probing, name, last)
        if directions.factors(1 - sample[0]) is None:  # a later layer
            continue
        back = torch.einsum("toi,ti->o", product, right)
        read = _with_bias(probing, name, last, seen, back) or _without(probing, directions)
        if read is not None and float(read.map.reads.double().mean()) >= _LEAST:
            found.append(read)
    return max(found, key=lambda f: (float(f.map.reads.double().mean()), f.returned is not None), default=None)


def as_product(gradient: Tensor, inputs_last: bool) -> Tensor:
    """(T, *parameter) -> (T, out, in)"""
    return gradient.flatten(2) if inputs_last else gradient.flatten(1, -2).mT


def leading(product: Tensor, rounds: int = _ROUNDS) -> tuple[Tensor, Tensor]:
    """The right factor (T, in) at length one of the nearest product, and the share (T,) that is no product.

    By the power method from the longest row: exact at once where there is one product and nothing else.
    """
    right = longest_row(product)
    for _ in range(rounds):
        left = torch.einsum("toi,ti->to", product, right)
        right = torch.einsum("toi,to->ti", product, left)
        right = right / right.norm(dim=1, keepdim=True).clamp_min(_TINY)
    left = torch.einsum("toi,ti->to", product, right)
    return right, beyond(product, left, right)


def longest_row(product: Tensor) -> Tensor:
    """(T, out, in) -> (T, in), at length one: the right factor itself, where there is one product."""
    right = product[torch.arange(len(product)), torch.linalg.vector_norm(product, dim=2).argmax(1)]
    unit: Tensor = right / right.norm(dim=1, keepdim=True).clamp_min(_TINY)
    return unit


def beyond(product: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """(T,) how much of `product` (T, out, in) its factors leave over, relative to its length."""
    rest: Tensor = product - left[..., None] * right[:, None]
    share: Tensor = rest.flatten(1).norm(dim=1) / product.flatten(1).norm(dim=1).clamp_min(_TINY)
    return share


def _vectors(probing: Probing) -> list[str]:
    return [name for name, shape in probing.shapes.items() if math.prod(shape) == max(shape, default=0)]


def _with_bias(probing: Probing, name: str, last: bool, seen: Mapping[str, Tensor], back: Tensor) -> FirstMap | None:
    """With a tensor beside it whose gradient is the product's other factor, `back`, so that nothing is missing."""
    for vector in _vectors(probing):
        own = seen[vector].flatten()
        if own.shape != back.shape or not bool(own.any()):
            continue
        apart = min(float((own / own.norm() - sign * back / back.norm()).norm()) for sign in (1, -1))
        if apart > _PARALLEL:
            continue

        def values(samples: Tensor, vector: str = vector) -> Tensor:
            rows = []
            for gradient in probing.gradients(samples, (name, vector)):
                other = gradient[vector].flatten(1)
                entered = (as_product(gradient[name], last) * other[..., None]).sum(1)
                rows.append(entered[0] / (other**2).sum().clamp_min(_TINY))
            return torch.stack(rows)

        if (found := input_map(values, probing.shape, probing.like)) is not None:
            return FirstMap(name, last, vector, found)
    return None


@dataclass(frozen=True)
class _Directions:
    """What goes into a tensor for a sample, which its gradient shows up to a factor of its own each time."""

    probing: Probing
    name: str
    last: bool

    def factors(self, sample: Tensor) -> Tensor | None:
        """What goes in for the sample (*shape), at the scale at which what goes in for a fixed one has length one.

        What goes in is affine in the sample: first + a * end = 2 b * middle for one a and one b. None where it is not.
        """
        start = torch.rand(self.probing.shape, generator=generator(0, "first-map/start")).to(sample)
        first, middle, end = self._at(torch.stack((start, (sample + start) / 2, sample)))
        if float((first @ end).abs()) > 1 - _ALIKE:  # other samples, the same direction: a later layer, all but dead
            return None
        towards = torch.stack((-end, 2 * middle), 1)
        solved = torch.linalg.lstsq(towards, first[:, None]).solution
        if not bool((towards @ solved - first[:, None]).norm() <= _PARALLEL):
            return None
        found: Tensor = solved[0] * end
        return found

    def _at(self, samples: Tensor) -> Tensor:
        gradients = self.probing.gradients(samples, (self.name,))
        return torch.cat([longest_row(as_product(g[self.name], self.last)) for g in gradients])


def _without(probing: Probing, directions: _Directions) -> FirstMap | None:
    """Up to a common factor, from directions alone."""

    def values(samples: Tensor) -> Tensor | None:
        rows = []
        for sample in samples:
            if (row := directions.factors(sample)) is None:
                return None
            rows.append(row)
        return torch.stack(rows)

    found = input_map(values, probing.shape, probing.like)
    return None if found is None else FirstMap(directions.name, directions.last, None, found)
