"""Layers further from the model of the last round than an honest round moves them."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from leakgauge.checks._check import Check, Measured
from leakgauge.checks._received import Received
from leakgauge.checks.suspicion import CAUTION

_STEP = 0.01  # a usual step of an optimiser per weight, so that layers that start at zero have a size too


def measure(received: Received) -> Mapping[str, Measured]:
    """Distance to the reference over the size of the layer there, weights and bias together."""
    if received.reference is None:
        return {}
    moved: dict[str, list[float]] = {}
    for name, tensor in received.tensors.items():
        before = received.reference.get(name)
        if before is None or before.shape != tensor.shape or not tensor.is_floating_point():
            continue
        if name.rpartition(".")[2].startswith("running_"):  # follow the data, not the optimiser
            continue
        distance = float(torch.linalg.vector_norm(tensor.float() - before.to(tensor.device).float()))
        size = float(torch.linalg.vector_norm(before.float()))
        sums = moved.setdefault(name.rpartition(".")[0] or name, [0.0, 0.0, 0.0])
        for place, value in enumerate((distance**2, size**2, float(tensor.numel()))):
            sums[place] += value
    return {
        layer: Measured(score, f"it moved by {score:.3g} times its size since the reference")
        for layer, (distance, size, count) in moved.items()
        for score in [distance**0.5 / (size**0.5 + _STEP * count**0.5)]
    }


CHECK = Check(
    id="drift",
    measure=measure,
    do="ask what happened since the last round, and compare with what other clients received",
    severity=CAUTION,
    severe="wild_drift",
)
