"""Layers of mostly zeros: the first of the three checks that Wang et al. 2023 give a client.

It is a caution, as pruned models are made of zeros too.
"""

from __future__ import annotations

from collections.abc import Mapping

from leakgauge.checks._check import Check, Measured
from leakgauge.checks._received import SCALE, Received
from leakgauge.checks.suspicion import CAUTION


def measure(received: Received) -> Mapping[str, Measured]:
    """The share of a layer's weights that are exactly zero."""
    found = {}
    for layer in received.layers:
        if layer.kind != SCALE:
            share = float((layer.weight == 0).float().mean())
            found[layer.name] = Measured(share, f"{share:.1%} of its {layer.weight.numel():,} weights are zero")
    return found


CHECK = Check(
    id="mostly-zeros",
    measure=measure,
    do="ask whether the model was pruned; zeros also sort what reaches each unit",
    severity=CAUTION,
)
