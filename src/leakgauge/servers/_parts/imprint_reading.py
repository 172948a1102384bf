"""From the gradient of an imprint module's first layer to the samples in its bins.

Row i of that layer sums over the samples above threshold i. Row i minus row i + 1 sums over those between the two.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.servers._parts.imprint_module import ONE_SHOT, SPARSE, ImprintModule

_ROUNDING = 8  # in units of the precision: by how much two rows over the same samples may differ
_SLACK = 0.01  # of the range [0, 1]: far above rounding, far below what two samples of opposite sign lead to


@dataclass(frozen=True)
class Bins:
    """What every bin holds: sums over its samples."""

    first: Tensor  # (B,) the row that holds the bin's samples, and those above it where something is taken off
    taken_off: Tensor  # (B,) bool: the following row is taken off
    bias: Tensor  # (T, B)
    mean_weight: Tensor  # (T, B) over the inputs
    rounding: Tensor  # (T, 1) how far from zero an empty bin's bias may be
    plausible: Tensor  # (T, B) bool: the mean of its samples, weighted by what they left, falls where the bin lies

    @property
    def hit(self) -> Tensor:
        """(T, B) bool: somebody is in it."""
        return self.bias.abs() > self.rounding

    def most(self, samples: int, keep: str) -> Tensor:
        """(T, M) the bins to read: those hit, no more than there are samples, the largest by one of two measures."""
        size = self.bias.abs() if keep == "bias" else self.mean_weight.abs()
        return torch.where(self.hit, size, -1.0).topk(min(samples, size.shape[1]), dim=1).indices

    def inputs(self, weight: Tensor, chosen: Tensor) -> Tensor:
        """(T, M, d) what the chosen bins (T, M) hold; zeros where nobody is."""
        trials = torch.arange(len(chosen), device=chosen.device)[:, None]
        first = self.first[chosen]
        rows = weight[trials, first]  # a copy of these rows only: the whole gradient may be large
        for trial, (where, row) in enumerate(zip(self.taken_off[chosen], first, strict=True)):
            rows[trial, where] -= weight[trial, row[where] + 1]
        bias = torch.where(self.hit, self.bias, torch.inf).gather(1, chosen)
        return rows.div_(bias[..., None])


def read_bins(module: ImprintModule, weight: Tensor, bias: Tensor, coarse: float, as_released: bool) -> Bins:
    """Sort the gradients (T, K, d) and (T, K) of the first layer into bins.

    `coarse` is what each entry may be off by besides its own precision, as a difference of weights is.
    """
    units = bias.shape[1]
    first = torch.arange(1 if module.variant == ONE_SHOT else units, device=bias.device)
    taken_off = torch.full_like(first, module.variant != SPARSE, dtype=torch.bool)
    everybody = torch.zeros_like(taken_off)
    if module.variant not in (SPARSE, ONE_SHOT):
        taken_off[-1] = False  # nothing lies above the last row: it is a bin as it stands
        if as_released:
            first[-1], everybody[-1] = 0, True  # the first row stands as it is instead: the sum over everybody

    def differences(rows: Tensor) -> Tensor:
        return rows[:, first] - torch.where(taken_off, rows[:, (first + 1).clamp_max(units - 1)], 0.0)

    own = differences(bias)
    precision = _ROUNDING * torch.finfo(bias.dtype).eps if module.variant != SPARSE else 0.0
    rounding = precision * own.abs().sum(1, keepdim=True) + coarse
    query = module.query.to(weight)
    statistic = differences(weight @ query) / torch.where(own == 0, torch.inf, own)
    low, high = module.edges[first].to(weight), module.edges[first + 1].to(weight)
    slack = (high - low) / 2
    plausible = (statistic > low - slack) & (statistic < high + slack) & ~everybody
    return Bins(first, taken_off, own, differences(weight.mean(2)), rounding, plausible)


def in_range(inputs: Tensor) -> Tensor:
    """(T, M) bool: is every entry of (T, M, d) one that a sample may have?"""
    return (inputs.amin(2) > -_SLACK) & (inputs.amax(2) < 1 + _SLACK)
