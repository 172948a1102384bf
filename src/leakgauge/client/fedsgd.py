"""FedSGD: the client shares the gradient of its mean loss (McMahan et al. 2017)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from leakgauge.engine.gradients import client_gradients, working_model
from leakgauge.engine.losses import loss_of
from leakgauge.engine.precision import in_precision, rounded_to
from leakgauge.types import Batch, Client, SharedUpdate, Step


def fedsgd(local: Client | None = None) -> Step:
    """A step that shares one gradient; BatchNorm uses running ("eval") or the batch's own statistics ("train")."""

    training = local or Client()

    def step(model: nn.Module, batch: Batch, seeds: Sequence[int]) -> SharedUpdate:  # noqa: ARG001
        worker = working_model(model, training.batchnorm)
        gradient = in_precision(
            training.precision,
            batch.inputs.device,
            loss_of(training),
            lambda loss: client_gradients(worker, batch.inputs, batch.labels, loss),
        )
        return SharedUpdate("gradient", {n: rounded_to(g, training.shared_as) for n, g in gradient.items()})

    return step
