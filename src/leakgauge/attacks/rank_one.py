"""Rank one: the sample out of any affine map that reads it first, with or without a bias, or an adapter beside it.

For one sample the gradient of such a map's weights is one product: what came back times what went in. Its right factor
is the sample's direction (Aono et al. 2018 divide by the bias's gradient; without a bias no ratio is left). LoRA's A
(Hu et al., "LoRA", ICLR 2022) is such a map as soon as its B is not zero. The map is found by the rank of its gradient
on made-up samples, not by the layer's type: a linear layer, an adapter, a convolution as large as the picture.

Where a bias, or anything whose gradient is the other factor, was shared, nothing is missing. Otherwise the sample's
length and sign are: one number, searched for within the range of the data, that makes the known client's update the
observed one. The truth is not asked. Several local steps on the one sample are fine: all see the same direction.

A sample is certified where the known client gives the update back from it but for rounding.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.attacks._one_sample import MENTIONED, SURE, Answer, OneSample, OwnReplay, best_answer, own_replay
from leakgauge.errors import NotApplicable
from leakgauge.matching.last_layer import CANNOT
from leakgauge.matching.probing import InputMap, Probing, as_product, probing_of
from leakgauge.matching.updates import observed_gradient
from leakgauge.types import DataSpec, Fact, Observation, Progress, Reconstruction

_LENGTHS = 24  # tried for each sign
_FINE = 9  # between the neighbours of the best of these
_PASSES = 7  # then: parabolas through three lengths
_NARROWER = 8.0  # each that much nearer to one another
_BEYOND = 1.05  # how far the longest tried may leave the range of the data
_SLACK = 1e-3  # how much of a sample may be out of range: rounding
_NUDGE = 1e-3  # relative step that shows how much the length matters
_TINY = 1e-300
IS_ZERO = "which is zero"
# Of the map.
_RANK_ONE = 1e-8  # share of a gradient's length beyond one product up to which it is one, in float64
_LEAST, _MOST = 0.5, 4.0  # numbers that are read, beside those of a sample
_ROWS = 8
_ALIKE = 1e-6  # from which cosine, beside one, two samples go in alike
_PARALLEL = 1e-7  # how far two of length one may be apart, in float64
_ROUNDS = 30  # of the power method, where noise lies over the product


@dataclass(frozen=True)
class RankOne(OneSample):
    """The sample from the gradient of the map that reads it.

    Example: `leakgauge attack rank-one --data breast-cancer --model my.py:adapted --trials 4`
    """

    name: ClassVar[str] = "rank-one"
    summary: ClassVar[str] = "read one sample off the first affine map's gradient, also without a bias or of an adapter"
    paper: ClassVar[str] = "after Aono et al. 2018, IEEE TIFS 13(5)"
    cost: ClassVar[float] = 1.1

    def check(self, observation: Observation) -> None:
        found_map(observation)

    def solve(self, observation: Observation, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:  # noqa: ARG002
        began = time.perf_counter()
        data: DataSpec = observation.fact(Fact.INPUT_SPEC)
        found, replay = found_map(observation), own_replay(observation)
        gradient = {name: tensor.double() for name, tensor in observed_gradient(observation).items()}
        entered, residual = found.direction(gradient)  # (T, in), (T,)

        def answer(scaled: bool) -> Answer:
            samples, off = found.map.sample(entered), torch.zeros_like(entered[:, 0])
            if found.returned is None:
                if not replay.known:
                    raise NotApplicable(f"rank-one needs a bias beside {found.name!r}: {CANNOT}, so no length fits")
                samples, off = _at_length(found, entered, replay, data.shape, scaled)
            samples = samples.reshape(-1, *data.shape)
            return Answer(samples, *replay.labelled(samples, scaled), off)

        best = best_answer(answer, replay.limit)
        error = (best.off + residual) * best.samples.flatten(1).square().mean(1).sqrt()
        proven = (best.misfit <= replay.limit) & (error <= SURE) & (found.map.share == 1)
        notes = tuple(_note(found, best, residual, proven, trial) for trial in range(len(seeds)))
        return dataclasses.replace(best.claimed(observation, began, proven, residual), notes=notes)


def found_map(observation: Observation) -> FirstMap:
    """Which tensor reads the sample first and whole; refused where none does or it says nothing."""
    data: DataSpec = observation.fact(Fact.INPUT_SPEC)
    shapes = {name: tuple(t.shape[1:]) for name, t in observation.update.tensors.items()}
    if not possible_first_maps(shapes, math.prod(data.shape)):
        raise NotApplicable("rank-one needs a map that reads the whole sample, and no shared tensor is large enough")
    if (samples := observation.fact(Fact.NUM_SAMPLES)) != 1:
        why = f"with {samples:,} the first map's gradient is a mixture of them"
        raise NotApplicable(f"rank-one needs one sample: {why}")
    found = first_map(probing_of(observation))
    if found is None:
        what = "an affine map that reads the sample first and whole"
        raise NotApplicable(f"rank-one needs {what}, and no tensor is one's")
    if not bool(observation.update.tensors[found.name].any()):
        why = "so is an adapter's at its start, while its other half is zero; after its first step it will not be"
        raise NotApplicable(f"rank-one needs the gradient of {found.name!r}, {IS_ZERO}: {why}")
    return found


def _at_length(
    found: FirstMap, directions: Tensor, replay: OwnReplay, shape: tuple[int, ...], scaled: bool
) -> tuple[Tensor, Tensor]:
    """Samples (T, numbers) at the length and sign under which the client gives the update, and how far off it may be.

    That is relative (T,), from how much the misfit changes with the length.
    """

    def misfits(lengths: Tensor, labels: Tensor) -> Tensor:  # (T, K), (T, L) -> (T, K, L)
        samples = found.map.sample(lengths[..., None] * directions[:, None]).reshape(*lengths.shape, *shape)
        options = labels.shape[1]
        costs = replay.misfit(samples.repeat_interleave(options, 1), labels.repeat(1, lengths.shape[1]), scaled)
        return costs.reshape(*lengths.shape, options)

    spans = [_lengths(found, directions, sign) for sign in (1.0, -1.0)]
    tried = torch.cat(spans, 1)
    width = torch.stack([(span[:, 1] - span[:, 0]).abs() for span in spans]).amax(0)
    costs = misfits(tried, replay.labels)
    label = replay.labels.gather(1, costs.amin(1).argmin(1, keepdim=True))
    best, cost = _least(tried, costs.amin(2))
    steps = torch.linspace(-1, 1, _FINE).to(tried)
    best, cost = _least(near := best[:, None] + width[:, None] * steps, misfits(near, label)[..., 0])
    width = 2 * width / (_FINE - 1)
    for _ in range(_PASSES):
        ends = torch.stack((best - width, best + width), 1)
        low, high = (misfits(ends, label)[..., 0] ** 2).unbind(1)
        bend = (low + high - 2 * cost**2).clamp_min(_TINY)  # of the parabola through the three
        vertex = best + width * (0.5 * (low - high) / bend).clamp(-1, 1)
        tried = torch.cat((best[:, None], vertex[:, None], ends), 1)
        at_vertex = misfits(vertex[:, None], label)[..., 0]
        best, cost = _least(tried, torch.cat((cost[:, None], at_vertex, low[:, None] ** 0.5, high[:, None] ** 0.5), 1))
        width = width / _NARROWER
    nudged = misfits(best[:, None] * (1 + _NUDGE), label)[:, 0, 0]
    steepness = (nudged**2 - cost**2).clamp_min(_TINY).sqrt() / _NUDGE  # misfit for each relative step in length
    return found.map.sample(best[:, None] * directions), cost / steepness


def _least(tried: Tensor, costs: Tensor) -> tuple[Tensor, Tensor]:
    cost, at = costs.min(1)
    return tried.gather(1, at[:, None])[:, 0], cost


def _lengths(found: FirstMap, directions: Tensor, sign: float) -> Tensor:
    """(T, K) factors of one sign for which a sample may be in range, evenly spread.

    Each number x = (factor * direction - shift) / slope wants 0 <= x <= 1. Most of them set the limits, not all: what
    rounding left of a number near zero may point out of the range.
    """
    there = found.map.index >= 0
    toward = sign * directions[:, there] / found.map.slope[there]  # (T, M)
    offset = found.map.shift[there] / found.map.slope[there]
    ends = torch.stack((offset.expand_as(toward), (1 + offset).expand_as(toward))) / toward
    low, high = ends.amin(0), ends.amax(0)  # (T, M) each number's limits
    sure = toward.abs() > _SLACK * toward.abs().amax(1, keepdim=True)
    low = torch.where(sure, low, -torch.inf).amax(1).clamp_min(0)
    high = torch.where(sure, high, torch.inf).amin(1)
    # Where the limits contradict one another (noise, the wrong sign), whatever keeps the largest number in range.
    widest = (1 + offset.abs().amax()) / toward.abs().amax(1).clamp_min(_TINY)
    fine = (high > low) & torch.isfinite(high)
    low, high = torch.where(fine, low, 0 * low), torch.where(fine, _BEYOND * high, widest)
    steps = torch.linspace(0, 1, _LENGTHS + 1)[1:].to(directions)
    return sign * (low[:, None] + (high - low)[:, None] * steps)


def _note(found: FirstMap, answer: Answer, residual: Tensor, proven: Tensor, trial: int) -> str:
    length = "length by the known network" if found.returned is None else f"length by {found.returned}"
    note, off = f"read off {found.name}, {length}", float(answer.misfit[trial])
    replayed = f"the client's update of it is off by {off:.1g}"
    note += f"; {CANNOT}, so no update is compared" if off == torch.inf else f"; {replayed}"
    if (left := float(residual[trial])) > MENTIONED:
        note += f"; {left:.2g} of the gradient is no product: noise, compression or another batch size"
    return note + ("; certified" if proven[trial] else "; not certified")


@dataclass(frozen=True)
class FirstMap:
    """A tensor whose gradient is one product for one sample: what came back times what went in, the sample itself.

    Without `returned` the map is known up to a common factor.
    """

    name: str  # of the tensor
    inputs_last: bool  # is it (out, in...), or (in..., out) as in x @ W?
    returned: str | None  # a tensor whose gradient is the product's other factor, a bias: gives the sample's length
    map: InputMap

    def direction(self, gradient: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """What went in (T, in), at length one unless the other factor is known; and what is left, a share."""
        product = as_product(gradient[self.name], self.inputs_last)  # (T, out, in)
        if self.returned is None:
            return leading(product)
        back = gradient[self.returned].flatten(1)  # (T, out)
        entered = other_factor(product, back)
        return entered, beyond(product, back, entered)


def possible_first_maps(shapes: Mapping[str, tuple[int, ...]], numbers: int) -> list[tuple[str, bool]]:
    """Tensors with room for a sample on one side, and which side; no gradient is needed."""
    sides = [(name, last) for name, shape in shapes.items() if len(shape) > 1 for last in (True, False)]
    read = {(name, last): math.prod(shapes[name][1:] if last else shapes[name][:-1]) for name, last in sides}
    return [side for side in sides if _LEAST * numbers <= read[side] <= _MOST * numbers]


def first_map(probing: Probing) -> FirstMap | None:
    """The tensor that reads the sample whole; the one with its other factor beside it if there are several."""
    possible = possible_first_maps(probing.shapes, math.prod(probing.shape))
    vectors = [name for name, shape in probing.shapes.items() if math.prod(shape) == max(shape, default=0)]
    if not possible:
        return None
    sample = probing.noise("first-map")
    (seen,) = probing.gradients(sample[None], [*dict(possible), *vectors])
    found = []
    for name, last in possible:
        product = as_product(seen[name], last)
        some = product[:, :: max(1, product.shape[1] // _ROWS)]  # a few rows rule out most tensors
        if float(leading(some, 1)[1]) > _RANK_ONE:
            continue
        right, left_over = leading(product, 1)
        reader = _Reader(probing, name, last)
        if float(left_over) > _RANK_ONE or not bool(product.any()) or reader.up_to_scale(1 - sample[None]) is None:
            continue  # no product, none at all, or a later layer's
        back = torch.einsum("toi,ti->o", product, right)
        maps = (
            (v, probing.input_map(partial(reader.beside, v))) for v in vectors if _parallel(seen[v].flatten(), back)
        )
        returned, read = next((pair for pair in maps if pair[1] is not None), (None, None))
        read = read or probing.input_map(reader.up_to_scale)
        if read is not None and read.share >= _LEAST:
            found.append(FirstMap(name, last, returned, read))
    return max(found, key=lambda f: (f.map.share, f.returned is not None), default=None)


@dataclass(frozen=True)
class _Reader:
    """What goes into a tensor for samples (K, *shape), by its gradients."""

    probing: Probing
    name: str
    last: bool

    def beside(self, vector: str, samples: Tensor) -> Tensor:
        """(K, in), with a tensor whose gradient is the product's other factor, so that nothing is missing."""
        gradients = self.probing.gradients(samples, (self.name, vector))
        products = torch.cat([as_product(g[self.name], self.last) for g in gradients])
        return other_factor(products, torch.cat([g[vector].flatten(1) for g in gradients]))

    def up_to_scale(self, samples: Tensor) -> Tensor | None:
        """(K, in), at the scale at which what goes in for a fixed sample has length one.

        Each gradient shows it up to a factor of its own. But what goes in is affine in the sample:
        first + a * end = 2 b * middle for one a and one b. None where it is not.
        """
        start, rows = self.probing.noise("first-map/start"), []
        for sample in samples:
            gradients = self.probing.gradients(torch.stack((start, (sample + start) / 2, sample)), (self.name,))
            first, middle, end = (longest_row(as_product(g[self.name], self.last))[0] for g in gradients)
            towards = torch.stack((-end, 2 * middle), 1)
            solved = torch.linalg.lstsq(towards, first[:, None]).solution
            alike = float((first @ end).abs()) > 1 - _ALIKE  # as in a later layer, all but dead
            if alike or not bool((towards @ solved - first[:, None]).norm() <= _PARALLEL):
                return None
            rows.append(solved[0] * end)
        return torch.stack(rows)


def other_factor(product: Tensor, back: Tensor) -> Tensor:
    """(T, out, in) and its left factor (T, out) -> the right one (T, in), by least squares."""
    return torch.einsum("toi,to->ti", product, back) / (back**2).sum(1, keepdim=True).clamp_min(_TINY)


def leading(product: Tensor, rounds: int = _ROUNDS) -> tuple[Tensor, Tensor]:
    """The right factor (T, in) at length one of the nearest product, and the share (T,) that is no product.

    By the power method from the longest row: exact at once where there is one product and nothing else.
    """
    right = longest_row(product)
    for _ in range(rounds):
        right = torch.einsum("toi,to->ti", product, torch.einsum("toi,ti->to", product, right))
        right = right / right.norm(dim=1, keepdim=True).clamp_min(_TINY)
    return right, beyond(product, torch.einsum("toi,ti->to", product, right), right)


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


def _parallel(own: Tensor, back: Tensor) -> bool:
    if own.shape != back.shape or not bool(own.any()):
        return False
    return min(float((own / own.norm() - sign * back / back.norm()).norm()) for sign in (1, -1)) <= _PARALLEL
