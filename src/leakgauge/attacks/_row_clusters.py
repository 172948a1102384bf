"""Samples from rows that agree, for updates whose numbers are too coarse to prove anything.

Rows that hold one and the same sample are parallel, up to what rounding does to their entries. Two rows that mix
several samples seldom mix them alike. Where they do, because the samples have one label, the known network gives them
away: one sample alone would leave half of what is there or less. So a sample is claimed, not proven, if several rows
agree on it and the network says of most of them that it leaves just that. Claimed samples are taken out of all rows,
and rows that held two now hold one.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.attacks._behind_first_layer import BehindFirstLayer
from leakgauge.matching.shared_precision import Precision

_FEWEST = 2  # rows that agree
_PER_ENTRY = 0.29  # the standard deviation of a number that was rounded, beside the step it was rounded to
_SAME = 1.5  # rows agree up to this many times the angle that rounding explains
_WIDEST = 0.06  # an angle beyond which a row says nothing
_ON_SLOPE = 0.05  # relative: how far what a sample leaves in a row may be off what is there
_MOST_OF = 0.6  # of a cluster's rows, which the network must confirm
_BEYOND = 0.02  # how far a value may be out of its range
_MOST_PASSES = 8
_MOST_ROWS = 2000  # compared with one another at once
_TINY = 1e-300


@dataclass(frozen=True)
class Claims:
    """What rows agree on, those of most rows first."""

    inputs: Tensor  # (K, D) samples
    labels: Tensor  # (K,)
    rows: Tensor  # (K,) how many rows agree


@dataclass(frozen=True)
class _Left:
    """The rows without the samples that were claimed."""

    weight: Tensor  # (H, D)
    bias: Tensor  # (H,)
    off: Tensor  # (H,) standard deviation of an entry, by rounding and by what was taken out


def claimed_by_clusters(
    weight: Tensor,
    bias: Tensor,
    scale: Tensor,
    shift: Tensor,
    precision: Precision,
    behind: BehindFirstLayer,
    shape: tuple[int, ...],
    proven: tuple[Tensor, Tensor],
) -> Claims:
    """From the gradients (H, D) and (H,) of the layer that reads z = scale * x + shift; `proven` (K, D) and (K,) is
    known already and not claimed again."""
    behind = dataclasses.replace(behind, second=None)
    none = bias.new_zeros(0, dtype=torch.long)
    claims = Claims(proven[0], proven[1], none.new_zeros(len(proven[0])))
    for _ in range(_MOST_PASSES):
        left = _without(weight, bias, scale, shift, precision, behind, shape, claims)
        new = _look(left, claims, scale, shift, behind, shape)
        if not len(new.inputs):
            break
        claims = Claims(*(torch.cat((getattr(claims, n), getattr(new, n))) for n in ("inputs", "labels", "rows")))
    first = len(proven[0])
    most = claims.rows[first:].argsort(descending=True)[: behind.samples - first] + first
    return Claims(claims.inputs[most], claims.labels[most], claims.rows[most])


def _without(
    weight: Tensor,
    bias: Tensor,
    scale: Tensor,
    shift: Tensor,
    precision: Precision,
    behind: BehindFirstLayer,
    shape: tuple[int, ...],
    claims: Claims,
) -> _Left:
    step = (precision.relative * weight.square().mean(1).sqrt()).clamp_min(precision.spacing)
    off = _PER_ENTRY * step
    if not len(claims.inputs):
        return _Left(weight, bias, off)
    coefficients, _ = behind.coefficients(claims.inputs.reshape(-1, *shape), claims.labels)  # (K, H)
    held = claims.inputs * scale + shift
    rest = weight - coefficients.T @ held
    error = precision.relative * (coefficients.abs().T @ held.square().mean(1).sqrt())
    return _Left(rest, bias - coefficients.sum(0), (off.square() + error.square()).sqrt())


def _look(
    left: _Left, claims: Claims, scale: Tensor, shift: Tensor, behind: BehindFirstLayer, shape: tuple[int, ...]
) -> Claims:
    """Clusters among the rows that are clear of rounding, confirmed by the network."""
    lengths = left.weight.norm(dim=1)
    angle = left.off * math.sqrt(left.weight.shape[1]) / lengths.clamp_min(_TINY)
    rows = torch.nonzero((angle * 2 * _SAME < _WIDEST) & (left.bias != 0))[:, 0]
    rows = rows[angle[rows].argsort()][:_MOST_ROWS]
    found: list[tuple[Tensor, int, int]] = []
    known = claims.inputs
    for members in _clusters(left.weight[rows] / lengths[rows, None], angle[rows]):
        of = rows[members]
        bias = left.bias[of]
        z = (left.weight[of] * bias[:, None]).sum(0) / bias.square().sum().clamp_min(_TINY)
        x = (z - shift) / scale
        if bool(((x < -_BEYOND) | (x > 1 + _BEYOND)).any()) or _is_known(x, known):
            continue
        label = _confirmed(x, of, bias, behind, shape)
        if label is not None:
            found.append((x, label, len(of)))
            known = torch.cat((known, x[None]))
    return Claims(
        torch.stack([x for x, _, _ in found]) if found else left.weight.new_zeros(0, left.weight.shape[1]),
        torch.tensor([label for _, label, _ in found], dtype=torch.long, device=rows.device),
        torch.tensor([count for _, _, count in found], dtype=torch.long, device=rows.device),
    )


def _clusters(unit: Tensor, angle: Tensor) -> list[Tensor]:
    """Groups of rows (R, D) that agree, the largest first; each row is in one group at most."""
    if not len(unit):
        return []
    apart = (2 - 2 * (unit @ unit.T).abs()).clamp_min(0)
    agree = apart <= (_SAME**2) * (angle[:, None].square() + angle.square())
    agree.fill_diagonal_(True)
    groups: list[Tensor] = []
    while True:
        neighbours = agree.sum(1)
        centre = int(neighbours.argmax())
        if int(neighbours[centre]) < _FEWEST:
            return groups
        members = torch.nonzero(agree[centre])[:, 0]
        groups.append(members)
        agree[members] = False
        agree[:, members] = False


def _is_known(x: Tensor, known: Tensor) -> bool:
    """Is it one of these (K, D), as far as coarse numbers tell?"""
    if not len(known):
        return False
    near = (known - x).square().mean(1).sqrt() <= _WIDEST * x.square().mean().sqrt()
    return bool(near.any())


def _confirmed(x: Tensor, rows: Tensor, seen: Tensor, behind: BehindFirstLayer, shape: tuple[int, ...]) -> int | None:
    """The label with which the network says of most of these rows that the sample leaves what is there."""
    slopes = behind.slopes(x.expand(len(rows), -1).reshape(-1, *shape), rows)  # (R, C)
    fits = (slopes - seen[:, None]).abs() <= _ON_SLOPE * seen.abs()[:, None]
    share, label = fits.double().mean(0).max(0)
    return int(label) if float(share) >= _MOST_OF else None
