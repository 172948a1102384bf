"""Units of a first linear layer that fire for one class of the client's own samples only."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from leakgauge.checks._check import Check, Measured
from leakgauge.checks._received import Received
from leakgauge.checks.suspicion import CAUTION
from leakgauge.models import input_affine

_FEWEST = 4  # samples of two or more classes
_UNITS = 8  # active ones; a share of fewer says nothing


def measure(received: Received) -> Mapping[str, Measured]:
    """Of the units that fire for any sample, the share that fires for samples of one class alone."""
    samples, model = received.samples, received.model
    layer = next((layer for layer in received.layers if layer.name == received.first), None)
    if samples is None or model is None or layer is None or samples.inputs.shape[1] < _FEWEST:
        return {}
    inputs, labels = samples.inputs[0], samples.labels[0]
    present = labels.bincount().nonzero().flatten()  # classes
    affine = input_affine(model, inputs[:1])
    if affine is None or len(present) < 2:
        return {}
    scale, shift = affine
    bias = 0 if layer.bias is None else layer.bias
    fires = (inputs.flatten(1).to(scale) * scale + shift) @ layer.weight.T + bias > 0  # (N, units)
    classes = torch.stack([fires[labels == label].any(0) for label in present]).sum(0)  # (units,)
    active = int((classes > 0).sum())
    if active < _UNITS:
        return {}
    alone = int((classes == 1).sum())
    evidence = f"{alone} of {active} active units fire for one class of {len(labels)} samples only"
    return {layer.name: Measured(alone / active, evidence)}


CHECK = Check(
    id="selective-units",
    measure=measure,
    do="send no update of a small batch: a unit that one sample activates has that sample for a gradient",
    severity=CAUTION,
)
