"""FedSGD: the client shares the gradient of its mean loss (McMahan et al. 2017)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from leakgauge.engine.gradients import LOSSES, client_gradients, working_model
from leakgauge.types import CROSS_ENTROPY, Batch, SharedUpdate, Step


def fedsgd(batchnorm: str = "eval", loss: str = CROSS_ENTROPY) -> Step:
    """A step that shares one gradient; BatchNorm uses running ("eval") or the batch's own statistics ("train")."""

    def step(model: nn.Module, batch: Batch, seeds: Sequence[int]) -> SharedUpdate:  # noqa: ARG001
        worker = working_model(model, batchnorm)
        return SharedUpdate("gradient", client_gradients(worker, batch.inputs, batch.labels, LOSSES[loss]))

    return step
