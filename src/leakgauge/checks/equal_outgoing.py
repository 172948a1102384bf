"""Units whose outgoing weights are the same: each sample then pushes all of them alike, and differences cancel."""

from __future__ import annotations

from collections.abc import Mapping

from leakgauge.checks._check import Check, Measured
from leakgauge.checks._received import Received
from leakgauge.checks.identical_rows import digits


def measure(received: Received) -> Mapping[str, Measured]:
    """Under the name of the layer whose columns they are. The last layer is left out: few classes give like columns."""
    found = {}
    for layer in received.hidden():
        following = received.after(layer)
        if following is None or following.name == received.last or len(following.columns) < 2:
            continue
        columns = following.columns
        exact = int((columns.residual < 1e-3).sum())
        evidence = f"{exact} of {len(columns)} units of {layer.name!r} have the same outgoing weights up to a factor"
        found[following.name] = Measured(digits(columns), evidence)
    return found


CHECK = Check(
    id="equal-outgoing",
    measure=measure,
    do="do not train on it: the differences between such units' gradients are single samples",
)
