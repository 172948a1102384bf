"""Dense layers as wide as the input: the second of the three checks that Wang et al. 2023 give a client.

It is a caution, as a perceptron may be that wide by its nature.
"""

from __future__ import annotations

from collections.abc import Mapping

from leakgauge.checks._check import Check, Measured
from leakgauge.checks._received import Received
from leakgauge.checks.suspicion import CAUTION


def measure(received: Received) -> Mapping[str, Measured]:
    """Units of each hidden linear layer for every value of a sample; nothing where the client's data are unknown."""
    if not received.inputs:
        return {}
    return {
        layer.name: Measured(
            len(layer.weight) / received.inputs,
            f"it has {len(layer.weight):,} units, and a sample has {received.inputs:,} values",
        )
        for layer in received.hidden()
    }


CHECK = Check(
    id="oversized-dense",
    measure=measure,
    do="ask why it is that wide: a layer of the input's size can pass the input on",
    severity=CAUTION,
)
