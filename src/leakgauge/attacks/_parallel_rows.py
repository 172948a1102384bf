"""A first linear layer's input from the rows of its weight gradient that are parallel to one another.

For one sample every clean row of the gradient is a multiple of the input, whatever its size. Noise points a row
elsewhere, and no two noised rows to the same place: the rows that agree are the clean ones, and need no weighing.
"""

from __future__ import annotations

import torch
from torch import Tensor

_TINY = 1e-30
_AGREEING = 8  # one live row in so many must agree with a row for it to be believed
_SLACK = 10.0  # rows count as parallel up to this many times the angle at which that many agree


def input_of_parallel_rows(weight: Tensor, bias: Tensor) -> Tensor:
    """(T, out, in), (T, out) -> the layer's input (T, in), up to whatever noise the parallel rows have.

    A bias entry may be noised where its row is clean: the ratio is the median over the rows.
    """
    rows, biases = weight.double(), bias.double()  # in single precision angles below 3e-4 cannot be told from none
    lengths = rows.norm(dim=2)
    live = lengths > 0
    unit = rows / lengths.clamp_min(_TINY)[..., None]
    inner = unit @ unit.transpose(1, 2)  # (T, out, out) cosines
    apart = (2 - 2 * inner.abs()).clamp_min(0)  # squared angle
    apart = torch.where(live[:, None] & live[..., None], apart, torch.inf)
    apart.diagonal(dim1=1, dim2=2).fill_(torch.inf)
    wanted = (live.sum(1) // _AGREEING).clamp_min(1) - 1  # (T,) how many must agree, less one
    near = apart.sort(2).values.gather(2, wanted[:, None, None].expand(-1, apart.shape[1], 1))[..., 0]
    reach, best = near.min(1)  # the row that its neighbours agree with most closely
    reference = best[:, None, None]
    among = apart.gather(1, reference.expand(-1, 1, apart.shape[2]))[:, 0] <= _SLACK * reach[:, None]
    among.scatter_(1, best[:, None], True)
    cosine = inner.gather(1, reference.expand(-1, 1, inner.shape[2]))[:, 0]
    signed = torch.where(among, lengths * cosine.sign(), 0.0)
    direction = torch.einsum("to,toi->ti", signed, rows)
    direction = direction / direction.norm(dim=1, keepdim=True).clamp_min(_TINY)
    along = torch.einsum("toi,ti->to", rows, direction)
    ratios = torch.where(among, biases / torch.where(along == 0, _TINY, along), torch.nan)
    scale = ratios.nanmedian(1).values
    found: Tensor = direction / torch.where(scale == 0, _TINY, scale)[:, None]
    return found.to(weight.dtype)
