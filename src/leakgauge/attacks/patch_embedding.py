"""Patch embedding: a whole picture out of a vision transformer's first step, by one linear least-squares solve.

Patches x_p become tokens W x_p + b + position_p. So the gradient of the position embedding is what each token got back,
dL/dposition_p = d_p, and that of the weights is the sum over the places of d_p x_p^T: linear equations for the patches,
with all but them known. Lu et al., "APRIL: Finding the Achilles' Heel on Privacy for Vision Transformers", CVPR 2022,
start from the position embedding's gradient too, and solve for the attention's input; here the patches themselves are
the unknowns, which is one equation less to invert.

One sample: a batch's position embedding holds the sum over its samples, and then it says nothing. As many places as the
embedding is wide can be distinguished; the rest is about mid-grey. The pair of tensors is found by
what their gradients on made-up samples are, not by the layer's type: strided convolution or linear layer, class token
or not, table, parameter or embedding.

A sample is certified where the known client gives the update back from it but for rounding, or where there are more
equations than unknowns and they hold, and where the expected error is small.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.attacks._one_sample import MENTIONED, SURE, Answer, OneSample, best_answer, own_replay, precision_of
from leakgauge.errors import NotApplicable
from leakgauge.matching.probing import InputMap, Probing, as_product, probing_of
from leakgauge.matching.updates import observed_gradient
from leakgauge.types import DataSpec, Fact, Observation, Progress, Reconstruction

_SOLVED = 1e-7  # relative residual up to which the rows explain the weights, in float64
_LEAST, _MOST = 0.5, 4.0  # entries of all patches together, beside the sample's numbers: overlapping patches have more
_SPARE = 1.5  # equations for each unknown place
_MOST_PAIRS = 40
_MOST_PULLS = 12
_CUT = 1e-11  # singular values this small beside the largest are none
_SPREAD = 0.25  # of a sample's numbers about mid-grey, where the equations say nothing
_TINY = 1e-300


@dataclass(frozen=True)
class PatchEmbedding(OneSample):
    """A picture from the gradients of its patches' weights and positions.

    Example: `leakgauge attack patch-embedding --data photos32 --model my.py:vit --trials 4`
    """

    name: ClassVar[str] = "patch-embedding"
    summary: ClassVar[str] = "solve for the patches: the position embedding's gradient against the patch weights'"
    paper: ClassVar[str] = "after Lu et al. 2022, APRIL, CVPR"
    cost: ClassVar[float] = 1.2

    def check(self, observation: Observation) -> None:
        found_rows(observation)

    def solve(self, observation: Observation, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:  # noqa: ARG002
        began = time.perf_counter()
        data: DataSpec = observation.fact(Fact.INPUT_SPEC)
        solved, replay = solved_rows(observation, found_rows(observation)), own_replay(observation)
        samples = solved.samples.reshape(-1, *data.shape)
        answer = best_answer(
            lambda scaled: Answer(samples, *replay.labelled(samples, scaled), 0 * solved.error), replay.limit
        )
        holds = (answer.misfit <= replay.limit) | ((solved.residual <= replay.limit) & solved.checked)
        proven = holds & (solved.error <= SURE)
        notes = tuple(_note(solved, trial, bool(proven[trial])) for trial in range(len(seeds)))
        return dataclasses.replace(answer.claimed(observation, began, proven, solved.residual), notes=notes)


def found_rows(observation: Observation) -> PatchRows:
    """Which tensors hold the patches; refused where none do."""
    data: DataSpec = observation.fact(Fact.INPUT_SPEC)
    shapes = {name: tuple(t.shape[1:]) for name, t in observation.update.tensors.items()}
    if not possible_pairs(shapes, math.prod(data.shape)):
        what = "a trained position embedding and the weights of the patches in the update"
        raise NotApplicable(f"patch-embedding needs {what}, and no two tensors have such shapes")
    if (samples := observation.fact(Fact.NUM_SAMPLES)) != 1:
        why = f"the position embedding's gradient is a sum over all {samples:,}, which does not separate them"
        raise NotApplicable(f"patch-embedding needs one sample: {why}")
    rows = patch_rows(probing_of(observation))
    if rows is None:
        what = "two tensors of which one's gradient holds what the patches behind the other got back"
        raise NotApplicable(f"patch-embedding needs {what}, and no two do")
    return rows


def _note(solved: Solved, trial: int, proven: bool) -> str:
    error, residual, left = (float(x[trial]) for x in (solved.error, solved.residual, solved.open))
    note = f"patches solved for, expected error {error:.2g}"
    if left > MENTIONED:
        note += f"; {left:.0%} of the picture is left open by the equations"
    if solved.checked and residual > MENTIONED:
        note += f"; {residual:.2g} of the gradient is not explained: noise, compression or another batch size"
    return note + ("; certified" if proven else "; not certified")


@dataclass(frozen=True)
class PatchRows:
    """Which two tensors may hold the patches, how they are laid out, and how the patches read the sample if they do."""

    weight: str
    inputs_last: bool  # (width, patch...) or (patch..., width)
    positions: str
    axis: int  # of the width in the table of positions
    map: InputMap | None = None  # of the patches, place after place

    def patches(self, probing: Probing, pulls: int, samples: Tensor) -> Tensor | None:
        """What the patches of each sample (K, *shape) are, by least squares; None where the equations do not hold."""
        rows = []
        for gradient in probing.gradients(samples, (self.weight, self.positions), pulls):
            returned, seen = self.equations(gradient)
            returned, seen = returned.mT.flatten(0, 1), seen.flatten(0, 1)  # (pulls * width, P), (pulls * width, patch)
            left, sizes, right = torch.linalg.svd(returned, full_matrices=False)
            there = sizes > _CUT * sizes.amax().clamp_min(_TINY)
            patches = right.mT @ (torch.where(there, 1 / sizes, 0)[:, None] * (left.mT @ seen))
            if not bool((seen - returned @ patches).norm() <= _SOLVED * seen.norm()):
                return None
            rows.append(patches.flatten())
        return torch.stack(rows)

    def equations(self, gradient: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """What the places got back (T, places, width), and the gradient of the weights (T, width, patch)."""
        table = gradient[self.positions].double().movedim(self.axis + 1, -1).flatten(1, -2)
        return table, as_product(gradient[self.weight].double(), self.inputs_last)


@dataclass(frozen=True)
class Solved:
    """Samples from the rows, and what speaks for them."""

    samples: Tensor  # (T, numbers)
    residual: Tensor  # (T,) share of the weights' gradient that the rows do not explain
    error: Tensor  # (T,) root mean square error of a number to expect
    checked: bool  # are there more equations than unknowns, so that a small residual proves something?
    open: Tensor  # (T,) share of the unknowns that the equations leave open


def possible_pairs(shapes: Mapping[str, tuple[int, ...]], numbers: int) -> list[tuple[str, bool, str, int]]:
    """(weight, inputs last, positions, axis) by shapes alone, those first whose patches are a sample together."""
    found = []
    weights = [(name, last) for name, shape in shapes.items() if len(shape) > 1 for last in (True, False)]
    tables = [(name, axis) for name, shape in shapes.items() for axis in range(len(shape))]
    for (weight, last), (table, axis) in itertools.product(weights, tables):
        width = shapes[table][axis]
        places, patch = math.prod(shapes[table]) // width, math.prod(shapes[weight]) // width
        if table == weight or shapes[weight][0 if last else -1] != width or places < 2:
            continue
        entries = places * patch
        if _LEAST * numbers <= entries <= _MOST * numbers + patch:
            found.append((abs(entries - numbers), weight, last, table, axis))
    return [pair[1:] for pair in sorted(found)[:_MOST_PAIRS]]


def patch_rows(probing: Probing) -> PatchRows | None:
    """The pair that holds the sample, or None."""
    noise = probing.noise("patch-rows")[None]
    for pair in (PatchRows(*names) for names in possible_pairs(probing.shapes, math.prod(probing.shape))):
        table = probing.shapes[pair.positions]
        width = table[pair.axis]
        pulls = max(1, math.ceil(_SPARE * (math.prod(table) // width) / width))
        if pulls > _MOST_PULLS or pair.patches(probing, pulls, noise) is None:
            continue
        found = probing.input_map(partial(pair.patches, probing, pulls))
        if found is not None and found.share >= _LEAST:
            return dataclasses.replace(pair, map=found)
    return None


def solved_rows(observation: Observation, rows: PatchRows) -> Solved:
    """The samples (T, numbers), by least squares; about mid-grey where the equations leave them open."""
    assert rows.map is not None
    precision = max(precision_of(observation, rows.weight), precision_of(observation, rows.positions))
    table, seen = rows.equations(observed_gradient(observation))  # (T, P, D), (T, D, k)
    trials, places, width = table.shape
    patch = seen.shape[2]
    grey = rows.map.values(torch.full((rows.map.numbers,), 0.5).to(table)).reshape(places, patch)
    at = (rows.map.index.reshape(places, patch) >= 0).any(1)  # not a class token's rows, nor spare ones
    constant = table[:, ~at].mT @ grey[~at]  # what places without a patch leave: nothing, unless they read constants
    back = table[:, at].mT  # (T, D, P')
    rest = seen - constant - back @ grey[at]
    left, sizes, right = torch.linalg.svd(back, full_matrices=False)  # (T, D, r), (T, r), (T, r, P')
    along = left.mT @ rest  # (T, r, k)
    unexplained = (rest - left @ along).square().sum((1, 2))
    spare = max(0, width - int(at.sum())) * patch
    rounding = precision * seen.square().mean((1, 2)).sqrt()
    noise = rounding if not spare else torch.maximum(rounding, (unexplained / spare).sqrt())
    slope = rows.map.slope[rows.map.index >= 0].square().mean().sqrt()
    prior = _SPREAD * slope
    kept = sizes**2 / (sizes**2 + (noise[:, None] / prior) ** 2).clamp_min(_TINY)  # (T, r), 1 where it is well known
    gain = kept / sizes.clamp_min(_TINY)
    patches = grey.expand(trials, -1, -1).clone()
    patches[:, at] = grey[at] + right.mT @ (gain[..., None] * along)
    left_open = (1 - kept.sum(1) / int(at.sum())).clamp_min(0)
    residual = unexplained.sqrt() / seen.flatten(1).norm(dim=1).clamp_min(_TINY)
    found = rows.map.sample(patches.flatten(1))
    return Solved(found, residual, prior * left_open.sqrt() / slope, bool(spare), left_open)
