"""FedSGD: the client shares the gradient of its mean loss (McMahan et al. 2017)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from leakgauge.engine.gradients import trial_gradients, working_model
from leakgauge.types import Batch, SharedUpdate, Step


def fedsgd(batchnorm: str = "eval") -> Step:
    """A step that shares one gradient; BatchNorm uses running ("eval") or the batch's own statistics ("train")."""

    def step(model: nn.Module, batch: Batch, seeds: Sequence[int]) -> SharedUpdate:  # noqa: ARG001
        gradients = trial_gradients(working_model(model, batchnorm), batch.inputs, batch.labels)
        return SharedUpdate("gradient", {name: g.detach() for name, g in gradients.items()})

    return step
