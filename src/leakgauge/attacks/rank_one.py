"""Rank one: the sample out of any affine map that reads it first, with or without a bias, or an adapter beside it.

For one sample the gradient of such a map's weights is one product: what came back times what went in. Its right factor
is the sample's direction (Aono et al. 2018 divide by the bias's gradient; without a bias no ratio is left). LoRA's
A (Hu et al., "LoRA", ICLR 2022) is such a map as soon as its B is not zero. The map is found by the rank of its gradient
on made-up samples, not by the layer's type (`_parts/first_map.py`).

Where a bias, or anything whose gradient is the other factor, was shared, nothing is missing. Otherwise the sample's
length and sign are: one number, searched for within the range of the data, that makes the known client's update the
observed one. The truth is not asked. Several local steps on the one sample are fine: all of them see the same direction.

A sample is certified where the known client gives the update back from it but for rounding.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.attacks._parts.first_map import FirstMap, first_map, possible_first_maps
from leakgauge.attacks._parts.own_replay import OwnReplay, own_replay, tolerance
from leakgauge.attacks._parts.probing import probing_of
from leakgauge.attacks._parts.updates import observed_gradient
from leakgauge.errors import NotApplicable
from leakgauge.types import (
    CROSS_ENTROPY,
    NLL_ON_LOGITS,
    Attack,
    DataSpec,
    Fact,
    Observation,
    Progress,
    Reconstruction,
)

_LENGTHS = 40  # tried for each sign in the first pass, and in each later one
_PASSES = 8  # each looks between the neighbours of the last one's best
_BEYOND = 1.05  # how far the longest tried may leave the range of the data
_SLACK = 1e-3  # how much of a sample may be out of range: rounding
_SURE = 0.02  # expected error of a number up to which a sample counts as proven
_NUDGE = 1e-3  # relative step that shows how much the length matters
_NOISE = 0.5  # share of the gradient that is no product from which nothing is claimed
_TINY = 1e-300
IS_ZERO = "which is zero"


@dataclass(frozen=True)
class RankOne(Attack):
    """The own objective is how far the known client's update of the claimed sample is off.

    Example: `leakgauge attack rank-one --data breast-cancer --model my.py:adapted --trials 4`
    """

    name: ClassVar[str] = "rank-one"
    summary: ClassVar[str] = "read one sample off the first affine map's gradient, also without a bias or of an adapter"
    paper: ClassVar[str] = "after Aono et al. 2018, IEEE TIFS 13(5)"
    needs: ClassVar[frozenset[Fact]] = frozenset({Fact.INPUT_SPEC, Fact.NUM_SAMPLES, Fact.LOCAL_TRAINING})
    losses: ClassVar[tuple[str, ...]] = (CROSS_ENTROPY, NLL_ON_LOGITS)

    def check(self, observation: Observation) -> None:
        found_map(observation)

    def reconstruct(self, observation: Observation, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:  # noqa: ARG002
        began = time.perf_counter()
        data: DataSpec = observation.fact(Fact.INPUT_SPEC)
        found = found_map(observation)
        gradient = {name: tensor.double() for name, tensor in observed_gradient(observation).items()}
        entered, residual = found.direction(gradient)  # (T, in), (T,)
        replay = own_replay(observation)
        if found.returned is None:
            samples, error = _at_length(found, entered, replay, data.shape, residual)
        else:
            samples, error = found.map.sample(entered), residual
        samples = samples.reshape(-1, *data.shape)
        labels, misfit = replay.labelled(samples)
        proven = (misfit <= tolerance(observation)) & (error <= _SURE) & bool(found.map.reads.all())
        ones = torch.ones(len(seeds), dtype=torch.long)
        like = next(iter(observation.update.tensors.values()))
        return Reconstruction(
            samples[:, None].to(like), labels[:, None], misfit.to(like), 0 * ones, ones, time.perf_counter() - began,
            notes=tuple(_note(found, float(residual[t]), float(misfit[t]), bool(proven[t])) for t in range(len(seeds))),
            certified=proven.long().cpu(), claimed=(residual < _NOISE)[:, None].cpu(),
        )  # fmt: skip


def found_map(observation: Observation) -> FirstMap:
    """Which tensor reads the sample first and whole; refused where none does or it says nothing."""
    data: DataSpec = observation.fact(Fact.INPUT_SPEC)
    shapes = {name: tuple(t.shape[1:]) for name, t in observation.update.tensors.items()}
    if not possible_first_maps(shapes, math.prod(data.shape)):
        raise NotApplicable("rank-one needs a map that reads the whole sample, and no shared tensor is large enough")
    if (samples := observation.fact(Fact.NUM_SAMPLES)) != 1:
        raise NotApplicable(
            f"rank-one needs one sample: with {samples:,} the first map's gradient is a mixture of them"
        )
    found = first_map(probing_of(observation))
    if found is None:
        raise NotApplicable("rank-one needs an affine map that reads the sample first and whole, and no tensor is one's")
    if not bool(observation.update.tensors[found.name].any()):
        raise NotApplicable(
            f"rank-one needs the gradient of {found.name!r}, {IS_ZERO}: so is an adapter's at its start, while its "
            "other half is zero; after its first step it will not be"
        )
    return found


def _at_length(
    found: FirstMap, directions: Tensor, replay: OwnReplay, shape: tuple[int, ...], residual: Tensor
) -> tuple[Tensor, Tensor]:
    """Samples (T, numbers) at the length and sign under which the client gives the update, and their expected error."""

    def misfits(lengths: Tensor) -> Tensor:  # (T, K) -> (T, K), at the best of the possible labels
        samples = found.map.sample(lengths[..., None] * directions[:, None])  # (T, K, numbers)
        options = replay.labels.shape[1]
        each = samples.reshape(*lengths.shape, *shape).repeat_interleave(options, 1)
        labels = replay.labels.repeat(1, lengths.shape[1])
        return replay.misfit(each, labels).reshape(*lengths.shape, options).amin(2)

    spans = [_lengths(found, directions, sign) for sign in (1.0, -1.0)]  # (T, K) each
    tried = torch.cat(spans, 1)
    best, width = tried[:, 0], tried[:, 0]
    for number in range(_PASSES):
        if number:
            steps = torch.linspace(-1, 1, _LENGTHS + 1).to(tried)
            tried = best[:, None] + width[:, None] * steps
        costs = misfits(tried)
        least = costs.argmin(1, keepdim=True)
        best = tried.gather(1, least)[:, 0]
        spacing = (tried[:, 1] - tried[:, 0]).abs()
        width = spacing if number else torch.maximum(spacing, (spans[1][:, 1] - spans[1][:, 0]).abs())
    at = misfits(torch.stack((best, best * (1 + _NUDGE)), 1))
    slope = (at[:, 1] ** 2 - at[:, 0] ** 2).clamp_min(_TINY).sqrt() / _NUDGE  # misfit for each relative step
    samples = found.map.sample(best[:, None] * directions)
    error = (at[:, 0] / slope + residual) * samples.square().mean(1).sqrt()
    return samples, error


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


def _note(found: FirstMap, residual: float, misfit: float, proven: bool) -> str:
    length = "length by the known network" if found.returned is None else f"length by {found.returned}"
    note = f"read off {found.name}, {length}; the client's update of it is off by {misfit:.1g}"
    if residual > 1e-3:
        note += f"; {residual:.2g} of the gradient is no product: noise, compression or another batch size"
    return note + ("; certified" if proven else "; not certified")
