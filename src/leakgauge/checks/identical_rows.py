"""Rows of a hidden linear layer that are exact multiples of one another: imprint modules and MKOR's first layer."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from leakgauge.checks._check import Check, Measured
from leakgauge.checks._neighbours import Neighbours
from leakgauge.checks._received import Received

_FINEST = 1e-8  # float32 has no more digits


def measure(received: Received) -> Mapping[str, Measured]:
    """Digits to which the two most alike rows agree, up to a factor; their last digits are rounding."""
    return {
        layer.name: Measured(digits(layer.rows), _evidence(layer.rows))
        for layer in received.hidden()
        if len(layer.rows) > 1
    }


def digits(neighbours: Neighbours) -> float:
    smallest = neighbours.residual.min().clamp(min=_FINEST)
    return max(0.0, -float(torch.log10(smallest)))


def _evidence(rows: Neighbours) -> str:
    exact = int((rows.residual < 1e-3).sum())
    return (
        f"{exact} of {len(rows)} rows are multiples of another row to three digits or more; the closest two differ by "
        f"{float(rows.residual.min()):.1e} of their length"
    )


CHECK = Check(
    id="identical-rows",
    measure=measure,
    do="do not train on it: units that look at the same thing let the server subtract samples from one another",
)
