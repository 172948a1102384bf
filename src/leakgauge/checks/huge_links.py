"""Single weights far above the rest of their linear layer: the enlarged links by which MKOR sorts classes."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from leakgauge.checks._check import Check, Measured
from leakgauge.checks._received import LINEAR, Received

_SEVERAL = 4  # weights that must stick out
_FEWEST = 64  # weights of a layer that can be judged
_SAMPLE = 1_000_000  # weights are enough for a median


def measure(received: Received) -> Mapping[str, Measured]:
    """The fourth largest weight over the median of those that are not zero."""
    found = {}
    for layer in received.of_kind(LINEAR):
        typical = _typical(layer.weight)
        if typical is None or layer.name == received.last:
            continue
        large = _fourth_largest(layer.weight)
        score = float(large) / typical
        found[layer.name] = Measured(
            score, f"several weights are {score:.0f} times the median; the fourth largest is {float(large):.3g}"
        )
    return found


def _fourth_largest(weight: Tensor) -> Tensor:
    """It lies in one of the four rows with the largest weights; looking at these alone spares a sort of the layer."""
    low, high = weight.aminmax(dim=1)
    rows = torch.maximum(high, -low).topk(min(_SEVERAL, len(weight))).indices
    return weight[rows].abs().flatten().topk(_SEVERAL).values[-1]


def _typical(weight: Tensor) -> float | None:
    flat = weight.flatten()
    some = flat[:: max(1, len(flat) // _SAMPLE)]
    some = some[some != 0]
    return None if len(some) < _FEWEST else float(some.abs().median())


CHECK = Check(
    id="huge-links",
    measure=measure,
    do="do not train on it: a few links that drown all others tie single units to single classes",
)
