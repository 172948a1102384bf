"""Rank one: the sample out of any affine map that reads it first, with or without a bias, or an adapter beside it.

For one sample the gradient of such a map's weights is one product: what came back times what went in. Its right factor
is the sample's direction (Aono et al. 2018 divide by the bias's gradient; without a bias no ratio is left). LoRA's A
(Hu et al., "LoRA", ICLR 2022) is such a map as soon as its B is not zero. The map is found by the rank of its gradient
on made-up samples, not by the layer's type (`_first_map.py`).

Where a bias, or anything whose gradient is the other factor, was shared, nothing is missing. Otherwise the sample's
length and sign are: one number, searched for within the range of the data, that makes the known client's update the
observed one. The truth is not asked. Several local steps on the one sample are fine: all see the same direction.

A sample is certified where the known client gives the update back from it but for rounding.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.attacks._first_map import FirstMap, first_map, possible_first_maps
from leakgauge.attacks._own_replay import OwnReplay, own_replay, tolerance
from leakgauge.errors import NotApplicable
from leakgauge.matching.probing import probing_of
from leakgauge.matching.updates import observed_gradient
from leakgauge.types import Attack, DataSpec, Fact, Observation, Progress, Reconstruction

_LENGTHS = 24  # tried for each sign
_FINE = 9  # between the neighbours of the best of these
_PASSES = 7  # then: parabolas through three lengths
_NARROWER = 8.0  # each that much nearer to one another
_BEYOND = 1.05  # how far the longest tried may leave the range of the data
_SLACK = 1e-3  # how much of a sample may be out of range: rounding
_SURE = 0.02  # expected error of a number up to which a sample counts as proven
_NUDGE = 1e-3  # relative step that shows how much the length matters
_NOISE = 0.5  # share of the gradient that is no product from which nothing is claimed
_MENTIONED = 1e-3  # and from which a note says so
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
    tier: ClassVar[str] = "quick"
    cost: ClassVar[float] = 1.1
    needs: ClassVar[frozenset[Fact]] = frozenset({Fact.INPUT_SPEC, Fact.NUM_SAMPLES, Fact.LOCAL_TRAINING})
    losses: ClassVar[tuple[str, ...]] = ()

    def check(self, observation: Observation) -> None:
        found_map(observation)

    def solve(self, observation: Observation, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:  # noqa: ARG002
        began = time.perf_counter()
        data: DataSpec = observation.fact(Fact.INPUT_SPEC)
        found = found_map(observation)
        gradient = {name: tensor.double() for name, tensor in observed_gradient(observation).items()}
        entered, residual = found.direction(gradient)  # (T, in), (T,)
        replay, limit = own_replay(observation), tolerance(observation)
        answer = _answer(found, entered, replay, data.shape, scaled=False)
        if bool((answer.misfit > limit).any()):  # clipped, perhaps: the direction of the update is left
            answer = answer.unless(_answer(found, entered, replay, data.shape, scaled=True), limit)
        error = (answer.off + residual) * answer.samples.flatten(1).square().mean(1).sqrt()
        proven = (answer.misfit <= limit) & (error <= _SURE) & bool(found.map.reads.all())
        ones = torch.ones(len(seeds), dtype=torch.long)
        like = next(iter(observation.update.tensors.values()))
        return Reconstruction(
            answer.samples[:, None].to(like),
            answer.labels[:, None],
            answer.misfit.to(like),
            0 * ones,
            ones,
            time.perf_counter() - began,
            notes=tuple(_note(found, answer, residual, proven, trial) for trial in range(len(seeds))),
            certified=proven.long().cpu(),
            claimed=(residual < _NOISE)[:, None].cpu(),
        )


@dataclass(frozen=True)
class _Answer:
    """What was found, and how well the known client's update of it meets the observed one."""

    samples: Tensor  # (T, *shape)
    labels: Tensor  # (T,)
    misfit: Tensor  # (T,)
    off: Tensor  # (T,) relative error of the length, if the misfit comes from nothing else

    def unless(self, other: _Answer, limit: float) -> _Answer:
        """This one, but the other where it alone meets the update."""
        better = (self.misfit > limit) & (other.misfit <= limit)
        pairs = {name: (getattr(other, name), own) for name, own in vars(self).items()}
        chosen = {n: torch.where(better.reshape(-1, *[1] * (own.dim() - 1)), o, own) for n, (o, own) in pairs.items()}
        return _Answer(**chosen)


def _answer(found: FirstMap, entered: Tensor, replay: OwnReplay, shape: tuple[int, ...], scaled: bool) -> _Answer:
    if found.returned is None:
        samples, off = _at_length(found, entered, replay, shape, scaled)
    else:
        samples, off = found.map.sample(entered), torch.zeros_like(entered[:, 0])
    samples = samples.reshape(-1, *shape)
    return _Answer(samples, *replay.labelled(samples, scaled), off)


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
        raise NotApplicable(
            "rank-one needs an affine map that reads the sample first and whole, and no tensor is one's"
        )
    if not bool(observation.update.tensors[found.name].any()):
        raise NotApplicable(
            f"rank-one needs the gradient of {found.name!r}, {IS_ZERO}: so is an adapter's at its start, while its "
            "other half is zero; after its first step it will not be"
        )
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
        at = torch.cat(
            (cost[:, None], misfits(vertex[:, None], label)[..., 0], low[:, None] ** 0.5, high[:, None] ** 0.5), 1
        )
        best, cost = _least(tried, at)
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


def _note(found: FirstMap, answer: _Answer, residual: Tensor, proven: Tensor, trial: int) -> str:
    length = "length by the known network" if found.returned is None else f"length by {found.returned}"
    note = f"read off {found.name}, {length}; the client's update of it is off by {float(answer.misfit[trial]):.1g}"
    if (left := float(residual[trial])) > _MENTIONED:
        note += f"; {left:.2g} of the gradient is no product: noise, compression or another batch size"
    return note + ("; certified" if proven[trial] else "; not certified")
