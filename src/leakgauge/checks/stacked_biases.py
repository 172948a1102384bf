"""Rows that look at the same thing with different biases: the bins of an imprint module."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from leakgauge.checks._check import Check, Measured
from leakgauge.checks._received import Layer, Received

_ALIKE = 1e-2  # residual up to which rows count as the same direction
_TRIED = 16  # directions


def measure(received: Received) -> Mapping[str, Measured]:
    return {
        layer.name: _measured(layer) for layer in received.hidden() if layer.bias is not None and len(layer.rows) > 1
    }


def _measured(layer: Layer) -> Measured:
    """The largest number of rows with one direction and pairwise different thresholds, bias over row length."""
    rows, bias = layer.rows, layer.bias
    assert bias is not None
    same = (rows.residual < _ALIKE) & (rows.cosine > 0)
    index = rows.index[same]
    if len(index) == 0:
        return Measured(0.0, "no two rows have the same direction")
    family = _largest_family(layer.weight, index, rows.partner[same])
    limits = bias[family] / torch.linalg.vector_norm(layer.weight[family], dim=1)
    steps = int((limits.sort().values.diff() > 1e-6 * (1 + limits.abs().max())).sum()) + 1
    in_order = bool((limits.diff() >= 0).all() | (limits.diff() <= 0).all())
    return Measured(
        float(steps) if steps > 1 else 0.0,
        f"{len(family)} rows have one direction and {steps} different biases"
        + (", which rise or fall from row to row" if in_order and steps > 2 else ""),
    )


def _largest_family(weight: Tensor, index: Tensor, partner: Tensor) -> Tensor:
    """Which of the rows at `index` point where the most of them do; tried are the directions with most partners."""
    some = torch.bincount(partner, minlength=len(weight)).topk(min(_TRIED, len(weight))).indices
    length = torch.linalg.vector_norm(weight, dim=1)
    cosines = weight[index] @ weight[some].T / (length[index, None] * length[some])  # (rows, tried)
    alike = cosines > 1 - _ALIKE**2 / 2  # a residual of that size, as a cosine
    return index[alike[:, alike.sum(0).argmax()]]


CHECK = Check(
    id="stacked-biases",
    measure=measure,
    do="do not train on it: each step between two biases singles out the samples in between",
)
