"""Gradients that come from one or few of the client's own samples, while the others leave none."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from leakgauge.checks._check import Check, Measured
from leakgauge.checks._received import Received
from leakgauge.checks.suspicion import CAUTION
from leakgauge.engine.gradients import working_model

_FEWEST = 4  # samples
_LARGEST = 12.0  # powers of ten; beyond, float32 has nothing to compare with
_ERROR = 1e-4  # |p - onehot| below which a sample has learnt out and its gradient is rounding


def measure(received: Received) -> Mapping[str, Measured]:
    """Per hidden layer: powers of ten between the largest squared gradient of a sample and the median one.

    A sample that the model gets right has a small gradient in every model, so each is divided by the sample's error at
    the output first. What is left is how well the layers pass it on.
    """
    samples, model = received.samples, received.model
    if samples is None or model is None:
        return {}
    inputs, labels = samples.inputs[0], samples.labels[0]
    error = _output_error(model, inputs, labels)
    kept = error > _ERROR
    if int(kept.sum()) < _FEWEST:
        return {}
    found = {}
    for name, every in received.sample_gradients.items():
        squares = every[kept.to(every.device)]
        if name == received.last:
            continue
        loud = squares / error[kept].square()
        if float(loud.max()) == 0:  # behind a last layer of zeros nothing is learnt yet
            continue
        tens = min(_LARGEST, float(torch.log10(loud.max()) - torch.log10(loud.median().clamp(min=1e-300))))
        share = squares.max() / (squares.sum() - squares.max()).clamp(min=1e-30)
        found[name] = Measured(
            tens,
            f"{int((loud < 1e-4 * loud.max()).sum())} of {len(loud)} samples leave next to no gradient, and the "
            f"largest one has {min(float(share), 1e12):.2g} times the energy of all others",
        )
    return found


def _output_error(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    """|p - onehot| of each sample, (N,)."""
    with torch.no_grad():
        probability = torch.softmax(working_model(model, "eval")(inputs), -1)
    truth = torch.nn.functional.one_hot(labels, probability.shape[-1])
    error: Tensor = torch.linalg.vector_norm(probability - truth, dim=-1).double()
    return error


CHECK = Check(
    id="dominant-sample",
    measure=measure,
    do="send no update: it would be the gradient of few samples, whatever the size of the batch",
    severity=CAUTION,
)
