"""Changes since an earlier model that the client trusts. Without one nothing is judged."""

from __future__ import annotations

import torch

from leakgauge.checks._received import SCALE, Received
from leakgauge.checks.suspicion import Found, caution, check

_STEP = 0.01  # a usual step of an optimiser per weight, so that layers that start at zero have a size too


@caution("ask what happened since the last round, and compare with what other clients received", severe="wild_drift")
def drift(received: Received) -> Found:
    """Distance to the reference over the size of the layer there, weights and bias together."""
    moved: dict[str, list[float]] = {}
    for name, tensor in received.tensors.items():
        before = (received.reference or {}).get(name)
        if before is None or before.shape != tensor.shape or not tensor.is_floating_point():
            continue
        layer, _, own = name.rpartition(".")
        if own.startswith("running_"):  # follow the data, not the optimiser
            continue
        distance = float(torch.linalg.vector_norm(tensor.float() - before.to(tensor.device).float()))
        size = float(torch.linalg.vector_norm(before.float()))
        sums = moved.setdefault(layer or name, [0.0, 0.0, 0.0])
        for place, value in enumerate((distance**2, size**2, float(tensor.numel()))):
            sums[place] += value
    for layer, (distance, size, count) in moved.items():
        score = distance**0.5 / (size**0.5 + _STEP * count**0.5)
        yield layer, score, f"it moved by {score:.3g} times its size since the reference"


@check("do not train on it: no round of training empties a layer, and an empty last layer counts your labels")
def emptied_layer(received: Received) -> Found:
    """1 for a layer of zeros that had weights in the reference."""
    reference = received.reference or {}
    for layer in received.layers:
        before = reference.get(f"{layer.name}.weight", reference.get(layer.name))
        if layer.kind != SCALE and before is not None and bool(before.any()):
            empty = not bool(layer.weight.any())
            yield layer.name, float(empty), "all weights are zero, and in the reference they were not"


@check("do not train on it: clients agreed on the architecture before the first round")
def other_architecture(received: Received) -> Found:
    """How many tensors are new, gone or of another shape: the server has put something in."""
    if received.reference is None:
        return
    before, now = received.reference, received.tensors
    new = [name for name in now if name not in before]
    gone = [name for name in before if name not in now]
    reshaped = [name for name in now if name in before and now[name].shape != before[name].shape]
    differing = [*new, *reshaped, *gone]
    evidence = f"{len(new)} tensors are new, {len(reshaped)} have another shape, {len(gone)} are gone"
    listed = f": {', '.join(differing[:3])}" if differing else ""
    yield (differing or list(now))[0], float(len(differing)), evidence + listed
