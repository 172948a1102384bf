"""A model that has other tensors than the reference: the server has put something in."""

from __future__ import annotations

from collections.abc import Mapping

from leakgauge.checks._check import Check, Measured
from leakgauge.checks._received import Received


def measure(received: Received) -> Mapping[str, Measured]:
    if received.reference is None:
        return {}
    before, now = received.reference, received.tensors
    new = [name for name in now if name not in before]
    gone = [name for name in before if name not in now]
    reshaped = [name for name in now if name in before and now[name].shape != before[name].shape]
    differing = [*new, *reshaped, *gone]
    return {
        (differing or list(now))[0]: Measured(
            float(len(differing)),
            f"{len(new)} tensors are new, {len(reshaped)} have another shape, {len(gone)} are gone"
            + (f": {', '.join(differing[:3])}" if differing else ""),
        )
    }


CHECK = Check(
    id="other-architecture",
    measure=measure,
    do="do not train on it: clients agreed on the architecture before the first round",
)
