"""For every row of a matrix the row to which it is most nearly parallel."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_FEWEST = 12  # non-zero weights; sparser or smaller rows are multiples of one another by chance
_LEVELS = 128  # magnitudes of 8-bit weights
_STEPS = 2.5  # of the rounding that the largest weight of a row must have
_SAMPLE = 100_000  # weights are enough to see rounding
_BLOCK = 1024  # rows at a time: their products take 4 MB
_CLOSE = 0.99  # cosines from which the difference is computed: a cosine near 1 has no digits left for it


@dataclass(frozen=True)
class Neighbours:
    """One entry per judged row; R of them."""

    index: Tensor  # (R,) which rows were judged: those with enough non-zero weights
    partner: Tensor  # (R,) the nearest row, as an index into the whole matrix
    cosine: Tensor  # (R,) with it, signed
    residual: Tensor  # (R,) share of the row's length that no multiple of the partner explains, 0 for exact multiples
    mean_square: float  # of the cosines of all pairs: 1/d for random rows of d weights

    def __len__(self) -> int:
        return len(self.index)


def find_neighbours(weight: Tensor) -> Neighbours:
    """`weight` is (rows, inputs). Products of blocks of rows: no copy of a large matrix, no large table of cosines."""
    full = torch.cat([(block != 0).sum(1) for block in torch.split(weight, _BLOCK)]) >= _FEWEST
    full &= torch.maximum(weight.amax(1), -weight.amin(1)) >= _least_step(weight)
    index = full.nonzero().flatten()
    judged = weight if bool(full.all()) else weight[index]
    R = len(index)
    length = torch.linalg.vector_norm(judged, dim=1)
    best = torch.zeros(R, device=weight.device)
    partner = torch.zeros(R, dtype=torch.long, device=weight.device)
    squares = 0.0
    for top in range(0, R, _BLOCK):
        for left in range(top, R, _BLOCK):  # the other half of the table is its mirror image
            here, there = slice(top, top + _BLOCK), slice(left, left + _BLOCK)
            cosines = judged[here] @ judged[there].T / (length[here, None] * length[there])
            if top == left:
                cosines.fill_diagonal_(0)
            squares += float(cosines.double().square().sum()) * (1 if top == left else 2)
            _keep_larger(best, partner, here, cosines, left)
            if top != left:
                _keep_larger(best, partner, there, cosines.T, top)
    mean_square = squares / max(1, R * (R - 1))
    residual = (1 - best.square()).clamp(min=0).sqrt()
    close = (best.abs() > _CLOSE).nonzero().flatten()
    for rows in torch.split(close, _BLOCK // 4):
        residual[rows] = _residual(judged[rows], judged[partner[rows]])
    return Neighbours(index, index[partner], best.clamp(-1, 1), residual, min(1.0, mean_square))


def _least_step(weight: Tensor) -> float:
    """Where weights are rounded to few values: the size below which a row has too few of them left to tell it apart."""
    flat = weight.flatten()
    values: Tensor = torch.unique(flat[:: max(1, len(flat) // _SAMPLE)].abs())
    values = values[values > 0]
    rounded = 1 < len(values) <= _LEVELS  # one value alone is not rounding: all weights are the same
    return _STEPS * float(values[0]) if rounded else 0.0


def _keep_larger(best: Tensor, partner: Tensor, rows: slice, cosines: Tensor, offset: int) -> None:
    size, place = cosines.abs().max(1)
    larger = size > best[rows].abs()
    found = cosines.gather(1, place[:, None]).flatten()
    best[rows] = torch.where(larger, found, best[rows])
    partner[rows] = torch.where(larger, place + offset, partner[rows])


def _residual(row: Tensor, other: Tensor) -> Tensor:
    """|row - a other| / |row| at the best a, without the cancellation of 1 - cosine²."""
    product = (row.double() * other.double()).sum(1)
    factor = (product / other.double().square().sum(1)).to(row)
    rest = torch.linalg.vector_norm(row - factor[:, None] * other, dim=1)
    share: Tensor = rest / torch.linalg.vector_norm(row, dim=1)
    return share
