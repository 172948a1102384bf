"""A product of two vectors from bounds on its entries: what one step of Adam leaves of a first layer's gradient.

Entry (o, i) is back[o] * entered[i], so its logarithm is a sum, and bounds on logarithms are linear in those of both
factors: a convex problem, solved by turns. Small entries have two bounds, large ones one from below (see
`gradient_behind`). The bias has the factor 1 and fixes the length, as does the range of the inputs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_ROUNDS = 60
_LEAST_WIDTH = 1e-3  # relative: how far off a well-known entry is taken to be
_ONE_SIDED = 0.5  # relative: by how much a bound alone may be missed
_TIGHT = 0.3  # half the distance of two bounds, relative, up to which an entry counts as known
_MOST_ROWS = 192  # those with the most entries between two bounds
_TINY = 1e-30


@dataclass(frozen=True)
class Factors:
    """What was found of each trial's product."""

    entered: Tensor  # (T, in)
    residual: Tensor  # (T,) mean relative error of the well-known entries; 1 where there are none
    known: Tensor  # (T,) share of the entries of `entered` that a well-known entry holds


def factors_in(
    least: Tensor,  # (T, out, in), infinite where there is no bound
    most: Tensor,
    back: tuple[Tensor, Tensor],  # the bounds (T, out) of the left factor
    low: Tensor,  # (in,) range of the right factor
    high: Tensor,
) -> Factors:
    """The right factor of the product that lies between the bounds."""
    least, most = (torch.cat((t, b[..., None]), 2) for t, b in zip((least, most), back, strict=True))
    held = (torch.isfinite(least) & torch.isfinite(most) & (least * most > 0)).sum(2)  # (T, out)
    rows_kept = held.topk(min(_MOST_ROWS, held.shape[1]), 1).indices[..., None].expand(-1, -1, least.shape[2])
    sign, lower, upper = _sizes(least.gather(1, rows_kept), most.gather(1, rows_kept))
    low, high = low.to(least), high.to(least)
    top = torch.cat((torch.maximum(low.abs(), high.abs()).clamp_min(_TINY).log(), low.new_zeros(1)))
    two = torch.isfinite(lower) & torch.isfinite(upper)
    # Both ends are as likely: of two bounds the middle counts, a single one where it is missed.
    half = torch.where(two, (upper - lower) / 2, 0)
    middle = torch.where(two, (upper + lower) / 2, 0)
    weight = torch.where(two, 1 / (half.square() + _LEAST_WIDTH**2), 1 / _ONE_SIDED**2)
    none = ~torch.isfinite(lower) & ~torch.isfinite(upper)

    def miss(rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        """How far each entry's logarithm is from where it should be, and by how much that counts."""
        own = rows[:, :, None] + columns[:, None]
        off = torch.where(two, middle - own, own.clamp(lower, upper) - own).where(~none, 0)
        return off, weight * (off != 0)

    rows = torch.where(two[..., -1], middle[..., -1], lower[..., -1].clamp_min(-50))
    columns = (top - 1).expand(len(rows), -1).clone()
    columns[:, -1] = 0
    for _ in range(_ROUNDS):
        off, counts = miss(rows, columns)
        columns = columns + (counts * off).sum(1) / counts.sum(1).clamp_min(_TINY)
        columns = torch.minimum(columns, top)
        columns[:, -1] = 0
        off, counts = miss(rows, columns)
        rows = rows + (counts * off).sum(2) / counts.sum(2).clamp_min(_TINY)
        # Both factors' lengths at once, which turns find slowly: the bias alone has a say in them.
        off, counts = (part[..., -1] for part in miss(rows, columns))
        longer = ((counts * off).sum(1) / counts.sum(1).clamp_min(_TINY))[:, None]
        rows, columns = rows + longer, torch.minimum(columns - longer, top)
        columns[:, -1] = 0
    tight = two & (half < _TIGHT)
    off, _ = miss(rows, columns)
    error = torch.where(tight, off.exp() - 1, 0).abs().sum((1, 2)) / tight.sum((1, 2)).clamp_min(1)
    votes = sign * sign[..., -1:] * weight.sqrt()  # of the right factor's sign
    entered = torch.where(votes.sum(1) < 0, -1.0, 1.0) * columns.exp()
    entered = torch.where((upper[..., :-1] < -50).any(1), 0, entered[:, :-1]).clamp(low, high)
    found = tight.flatten(1).any(1)
    return Factors(entered, torch.where(found, error, 1).clamp_max(1), tight[..., :-1].any(1).float().mean(1))


def _sizes(least: Tensor, most: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sign of an entry, 0 where it may be either, and the logarithms of its least and largest magnitude."""
    sign = (least > 0).to(least) - (most < 0).to(least)
    near, far = torch.minimum(least.abs(), most.abs()), torch.maximum(least.abs(), most.abs())
    lower = torch.where(sign != 0, near.clamp_min(_TINY).log(), -torch.inf)
    return sign, lower, far.clamp_min(_TINY).log()
