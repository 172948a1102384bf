"""Layers without any weight: ordinary at the very start, and a way to count labels exactly at any later time."""

from __future__ import annotations

from collections.abc import Mapping

from leakgauge.checks._check import Check, Measured
from leakgauge.checks._received import SCALE, Received
from leakgauge.checks.suspicion import CAUTION


def measure(received: Received) -> Mapping[str, Measured]:
    """1 for a last layer of zeros: all predictions are the same, so its update says how often each label occurs."""
    found = {}
    for layer in received.layers:
        if layer.name == received.last:
            empty = not bool(layer.weight.any())
            found[layer.name] = Measured(float(empty), "all weights of the last layer are zero")
    return found


def measure_emptied(received: Received) -> Mapping[str, Measured]:
    """1 for a layer of zeros that had weights in the reference."""
    if received.reference is None:
        return {}
    found = {}
    for layer in received.layers:
        before = received.reference.get(f"{layer.name}.weight", received.reference.get(layer.name))
        if layer.kind == SCALE or before is None or not bool(before.any()):
            continue
        found[layer.name] = Measured(
            float(not bool(layer.weight.any())), "all weights are zero, and in the reference they were not"
        )
    return found


CHECK = Check(
    id="empty-layer",
    measure=measure,
    do="accept it in the first round only; later it serves to count your labels",
    severity=CAUTION,
)
EMPTIED = Check(
    id="emptied-layer",
    measure=measure_emptied,
    do="do not train on it: no round of training empties a layer, and an empty last layer counts your labels",
)
