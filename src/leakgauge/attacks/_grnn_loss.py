"""GRNN's loss: how far a guess's gradient g' is from the observed g, and how uneven the guessed pictures are.

mse     sum (g' - g)^2
wd      sum |sort(g') - sort(g)|    Wasserstein-1 distance between the values of both, over all tensors together
cosine  1 - cosine(g', g)
tv      differences of neighbouring pixels, absolute or squared

Equation 3.4 of the thesis weighs mse and wd alike, which says something only on one scale: both as sums, or both as
means over the p entries. A sum of squares beside a mean of distances ("mixed") makes wd p times lighter. The released
code has the root of the sum of squares in place of wd.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from leakgauge.matching.distance import distance_between
from leakgauge.matching.problem import Rows

SUM, MEAN, MIXED = "sum", "mean", "mixed"
SCALES = (SUM, MEAN, MIXED)
ABSOLUTE, SQUARED = "absolute", "squared"
VARIATIONS = (ABSOLUTE, SQUARED)


@dataclass(frozen=True)
class Loss:
    """The weights of its parts; a part of weight zero is not computed."""

    mse: float = 1.0
    wd: float = 1.0
    cosine: float = 0.0
    scale: str = SUM
    as_released: bool = False  # the root of the sum of squares for wd

    def __call__(self, observed: Rows, known: Rows | None) -> Callable[[Rows], Tensor]:
        """(observed rows (A, p) each, entries that count) -> (rows of a guess -> (A,))."""
        entries = sum(row.shape[1] for row in observed)
        per_square = self.mse / (entries if self.scale == MEAN else 1)
        per_gap = self.wd * (entries if self.scale == SUM else 1)
        gap = mean_gap(observed, known) if self.wd and not self.as_released else None

        def distance(mine: Rows) -> Tensor:
            value = torch.zeros_like(mine[0][:, 0])
            if self.mse or (self.wd and self.as_released):
                squares = distance_between(mine, observed, "l2", known)
                value = value + per_square * squares
                if self.wd and self.as_released:  # a root has no slope at zero
                    value = value + self.wd * squares.clamp_min(torch.finfo(squares.dtype).tiny).sqrt()
            if gap is not None:
                value = value + per_gap * gap(mine)
            if self.cosine:
                value = value + self.cosine * distance_between(mine, observed, "cosine", known)
            return value

        return distance


def mean_gap(observed: Rows, known: Rows | None) -> Callable[[Rows], Tensor]:
    """Wasserstein-1 distance between the values of both, (rows of a guess -> (A,)); entries that do not count are 0."""
    goal = _counting(observed, known)
    goal = goal.gather(1, order(goal))

    def distance(mine: Rows) -> Tensor:
        values = _counting(mine, known)
        partner = torch.empty_like(goal).scatter_(1, order(values.detach()), goal)  # of the same rank
        return (values - partner).abs().mean(1)

    return distance


def _counting(rows: Rows, known: Rows | None) -> Tensor:
    """All entries in one row per trial, (A, p); those that do not count are zeros."""
    return torch.cat(rows if known is None else [row * mask for row, mask in zip(rows, known, strict=True)], 1)


def order(values: Tensor) -> Tensor:
    """The indices that sort each row. On a CPU by NumPy, which is four times as fast there."""
    if values.device.type != "cpu":
        return values.argsort(1)
    return torch.from_numpy(np.argsort(values.numpy(), 1))


def squared_variation(inputs: Tensor) -> Tensor:
    """Twice the mean squared difference of neighbours, down and across: (A, N, C, H, W) -> (A,)."""
    down, right = (d.square().flatten(1).sum(1) / max(1, d[0].numel()) for d in _differences(inputs))
    return 2 * (down + right)


def absolute_variation(inputs: Tensor) -> Tensor:
    """The sum of absolute differences of neighbours in a picture, its mean over pictures: (A, N, C, H, W) -> (A,)."""
    down, right = (d.abs().flatten(1).sum(1) for d in _differences(inputs))
    return (down + right) / inputs.shape[1]


def _differences(inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Of neighbours, down and across; one that has none is empty."""
    return inputs[..., 1:, :] - inputs[..., :-1, :], inputs[..., 1:] - inputs[..., :-1]
