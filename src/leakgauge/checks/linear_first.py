"""A linear layer that sees the raw input: it gives samples away to a server that does not even tamper."""

from __future__ import annotations

from collections.abc import Mapping

from leakgauge.checks._check import Check, Measured
from leakgauge.checks._received import Received
from leakgauge.checks.suspicion import CAUTION

_WIDE = 2.0  # units per input from which a layer is wider than a task asks for


def measure(received: Received) -> Mapping[str, Measured]:
    layer = next((layer for layer in received.layers if layer.name == received.first), None)
    if layer is None:
        return {}
    units, inputs = layer.weight.shape
    wide = ", far more than a task asks for" if units / inputs > _WIDE else ""
    return {layer.name: Measured(units / inputs, f"{units} units see all {inputs} raw inputs{wide}")}


CHECK = Check(
    id="linear-first",
    measure=measure,
    do="measure what it leaks with 'leakgauge attack linear'; a convolution in front would help",
    severity=CAUTION,
)
