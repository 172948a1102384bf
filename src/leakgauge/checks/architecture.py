"""Layers that are large, or stand where they see the raw input: a model may leak by its shape alone."""

from __future__ import annotations

from leakgauge.checks._received import Received
from leakgauge.checks.suspicion import Found, caution

_WIDE = 2.0  # units per input from which a layer is wider than a task asks for


@caution("measure what it leaks with 'leakgauge attack linear'; a convolution in front would help")
def linear_first(received: Received) -> Found:
    """A linear layer that sees the raw input gives samples away to a server that does not even tamper."""
    for layer in received.layers:
        if layer.name == received.first:
            units, inputs = layer.weight.shape
            wide = ", far more than a task asks for" if units / inputs > _WIDE else ""
            yield layer.name, units / inputs, f"{units} units see all {inputs} raw inputs{wide}"


@caution("ask why it is that wide: a layer of the input's size can pass the input on")
def oversized_dense(received: Received) -> Found:
    """Units of a hidden linear layer for each value of a sample: the second of the three checks in Wang et al. 2023.

    A perceptron may be that wide by its nature. Nothing is said where the client's data are unknown.
    """
    values = received.inputs
    for layer in received.hidden():
        if values:
            units = len(layer.weight)
            yield layer.name, units / values, f"it has {units:,} units, and a sample has {values:,} values"
