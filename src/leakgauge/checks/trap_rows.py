"""Rows in which negative weights face shrunk copies of themselves: trap weights, which fire for few samples."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from leakgauge.checks._check import Check, Measured
from leakgauge.checks._received import Received

_FEWEST = 16  # non-zero weights of a row; in smaller ones the signs balance by chance
_ROWS = 8  # of a layer; a share of fewer says nothing
_BLOCK = 256  # rows at a time
_BALANCE = 0.1  # of the spread that the count of positive weights has by chance
_ALIKE = 0.04  # distance of the sorted magnitudes, relative to how much they vary


def measure(received: Received) -> Mapping[str, Measured]:
    found = {}
    for layer in received.hidden():
        positive, negative = _signs(layer.weight)
        filled = positive + negative >= _FEWEST
        if int(filled.sum()) < _ROWS:
            continue
        share = float(trapped(layer.weight, positive, negative)[filled].double().mean())
        found[layer.name] = Measured(
            share,
            f"in {share:.0%} of {int(filled.sum())} rows the positive weights are as many as the negative ones and, "
            f"sorted, a multiple of them{_about_bias(layer.bias)}",
        )
    return found


def _signs(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Positive and negative weights of each row, (rows,) both."""
    surplus = torch.cat([block.sign().sum(1) for block in torch.split(weight, _BLOCK)]).long()
    filled = torch.cat([block.count_nonzero(dim=1) for block in torch.split(weight, _BLOCK)])
    return (filled + surplus) // 2, (filled - surplus) // 2


def trapped(weight: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    """Which rows (rows,) balance their signs and have the same magnitudes, up to one factor, on both sides."""
    off = (positive - negative).abs()
    balanced = off <= (_BALANCE * (positive + negative).double().sqrt()).clamp(min=1)
    result = torch.zeros(len(weight), dtype=torch.bool, device=weight.device)
    for rows in torch.split(
        balanced.nonzero().flatten(), _BLOCK
    ):  # sorting is dear, and few rows of a clean layer balance
        if len(rows) == 0:  # what a split of nothing gives
            break
        block = weight[rows]
        length = int(torch.minimum(positive[rows], negative[rows]).max())
        order = block.sort(dim=1).values
        up, down = order.flip(1)[:, :length].clamp(min=0), (-order[:, :length]).clamp(min=0)
        both = (up > 0) & (down > 0)  # what one side has more of is small and has no partner
        up, down = up * both, down * both
        factor = (up * down).sum(1, keepdim=True) / down.square().sum(1, keepdim=True).clamp(min=1e-30)
        rest = torch.linalg.vector_norm(up - factor * down, dim=1)
        mean = up.sum(1, keepdim=True) / both.sum(1, keepdim=True)
        # Pruning leaves magnitudes that hardly vary, and these are multiples of any others that do not.
        result[rows] = rest < _ALIKE * torch.linalg.vector_norm((up - mean) * both, dim=1)
    return result


def _about_bias(bias: Tensor | None) -> str:
    return ", without biases" if bias is None or not bool(bias.any()) else ""


CHECK = Check(
    id="trap-rows",
    measure=measure,
    do="do not train on it: such units fire for one sample of a batch, whose values their gradient then is",
)
