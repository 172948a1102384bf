"""Tensors whose gradients hold each other's rows: dL/dW = sum over places p of d_p x_p^T, and d_p = dL/dposition_p.

Where a table of positions is added to what W made of each patch, its gradient is, place by place, what W's output got
back. So the patches solve a linear least-squares problem. It is found by that, on made-up samples, and not by the
layer's type: strided convolution or linear layer, class token or not, table, parameter or embedding.
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

_SOLVED = 1e-7  # relative residual up to which the rows explain the weights, in float64
_LEAST, _MOST = 0.5, 4.0  # entries of all patches together, beside the sample's numbers: overlapping patches have more
_SPARE = 1.5  # equations for each unknown place
_MOST_PAIRS = 40
_MOST_PULLS = 12
_CUT = 1e-11  # singular values this small beside the largest are none
_SPREAD = 0.25  # of a sample's numbers about mid-grey, where the equations say nothing


@dataclass(frozen=True)
class PatchRows:
    """Which two tensors, how they are laid out, and how the patches read the sample."""

    weight: str
    inputs_last: bool  # (width, patch...) or (patch..., width)
    positions: str
    axis: int  # of the width in the table of positions
    patch: int  # numbers in one
    map: InputMap  # of the patches, place after place

    @property
    def places(self) -> Tensor:
        """(P,) bool: which rows of the table are added to a patch; a class token's, and spare ones, are not."""
        return (self.map.index.reshape(-1, self.patch) >= 0).any(1)


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
    for weight, shape in shapes.items():
        if len(shape) < 2:
            continue
        for last, width in ((True, shape[0]), (False, shape[-1])):
            patch = math.prod(shape) // width
            for table, other in shapes.items():
                for axis, size in enumerate(other):
                    places = math.prod(other) // size
                    if table == weight or size != width or places < 2:
                        continue
                    entries = places * patch
                    if _LEAST * numbers <= entries <= _MOST * numbers + patch:
                        found.append((abs(entries - numbers), weight, last, table, axis))
    return [pair[1:] for pair in sorted(found)[:_MOST_PAIRS]]


def patch_rows(probing: Probing) -> PatchRows | None:
    """The pair that holds the sample, or None."""
    numbers = math.prod(probing.shape)
    for weight, last, table, axis in possible_pairs(probing.shapes, numbers):
        width = probing.shapes[table][axis]
        places = math.prod(probing.shapes[table]) // width
        pulls = max(1, math.ceil(_SPARE * places / width))
        if pulls > _MOST_PULLS:
            continue
        patch = math.prod(probing.shapes[weight]) // width

        def values(
            samples: Tensor,
            weight: str = weight,
            last: bool = last,
            table: str = table,
            axis: int = axis,
            pulls: int = pulls,
        ) -> Tensor | None:
            rows = []
            for gradient in probing.gradients(samples, (weight, table), pulls):
                returned = as_rows(gradient[table], axis).mT.flatten(0, 1)  # (pulls * width, P)
                seen = as_weights(gradient[weight], last).flatten(0, 1)  # (pulls * width, patch)
                patches, residual = _least_squares(returned, seen)
                if not residual <= _SOLVED:
                    return None
                rows.append(patches.flatten())
            return torch.stack(rows)

        noise = torch.rand((1, *probing.shape), generator=generator(0, "patch-rows")).to(probing.like)
        if values(noise) is None:
            continue
        found = input_map(values, probing.shape, probing.like)
        if found is not None and float(found.reads.double().mean()) >= _LEAST:
            return PatchRows(weight, last, table, axis, patch, found)
    return None


def as_rows(table: Tensor, axis: int) -> Tensor:
    """(T, *parameter) -> (T, places, width)"""
    return table.movedim(axis + 1, -1).flatten(1, -2)


def as_weights(weight: Tensor, inputs_last: bool) -> Tensor:
    """(T, *parameter) -> (T, width, patch)"""
    return weight.flatten(2) if inputs_last else weight.flatten(1, -2).mT


def solve_patches(rows: PatchRows, gradient: Mapping[str, Tensor], precision: float) -> Solved:
    """The samples (T, numbers) behind the gradients, about mid-grey where the equations leave them open."""
    table = as_rows(gradient[rows.positions].double(), rows.axis)  # (T, P, D)
    seen = as_weights(gradient[rows.weight].double(), rows.inputs_last)  # (T, D, k)
    trials, places, width = table.shape
    patch = seen.shape[2]
    grey = rows.map.values(torch.full((rows.map.numbers,), 0.5).to(table)).reshape(places, patch)
    at = rows.places
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
    kept = sizes**2 / (sizes**2 + (noise[:, None] / prior) ** 2).clamp_min(1e-300)  # (T, r), 1 where it is well known
    gain = kept / sizes.clamp_min(1e-300)
    patches = grey.expand(trials, -1, -1).clone()
    patches[:, at] = grey[at] + right.mT @ (gain[..., None] * along)
    open_ = (int(at.sum()) - kept.sum(1)) / int(at.sum())
    return Solved(
        rows.map.sample(patches.flatten(1)),
        unexplained.sqrt() / seen.flatten(1).norm(dim=1).clamp_min(1e-300),
        prior * open_.clamp_min(0).sqrt() / slope,
        bool(spare),
        open_.clamp_min(0),
    )


def _least_squares(returned: Tensor, seen: Tensor) -> tuple[Tensor, float]:
    """(E, P), (E, k) -> the patches (P, k) of least length, and the relative residual."""
    left, sizes, right = torch.linalg.svd(returned, full_matrices=False)
    there = sizes > _CUT * sizes.amax().clamp_min(1e-300)
    along = left.mT @ seen
    patches = right.mT @ (torch.where(there, 1 / sizes, 0)[:, None] * along)
    residual = (seen - returned @ patches).norm() / seen.norm().clamp_min(1e-300)
    return patches, float(residual)
