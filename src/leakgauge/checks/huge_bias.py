"""Biases that nothing a sample contains can move: the server has switched units or classes on or off."""

from __future__ import annotations

from collections.abc import Mapping

from leakgauge.checks._check import Check, Measured
from leakgauge.checks._received import Received


def measure(received: Received) -> Mapping[str, Measured]:
    """|bias| over one plus the most that inputs in [0, 1] can add, which is the sum of the absolute weights."""
    found = {}
    for layer in received.layers:
        if layer.bias is None:
            continue
        reach = 1 + layer.weight.abs().sum(1)
        ratio = layer.bias.abs() / reach
        worst = int(ratio.argmax())
        found[layer.name] = Measured(
            float(ratio[worst]),
            f"the bias of unit {worst} is {float(layer.bias[worst]):.4g}, and inputs in [0, 1] can move the unit by "
            f"{float(reach[worst]) - 1:.3g} at most",
        )
    return found


CHECK = Check(
    id="huge-bias",
    measure=measure,
    do="do not train on it: biases of this size decide by themselves which samples leave a gradient",
)
