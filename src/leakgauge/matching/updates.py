"""From what was shared to the gradient an attack matches."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor

from leakgauge.client.gradient_behind import DIRECTIONS, EXACT, SIGNS, GradientBehind, gradient_behind
from leakgauge.errors import NotApplicable
from leakgauge.models.locked_norm import FIRST_ROUND, SeveralRounds
from leakgauge.models.structure import last_linear
from leakgauge.types import Client, DataSpec, Fact, Observation, Reconstruction


class _Gradient(dict[str, Tensor]):
    """A gradient that refuses an attack which asks for a tensor that the update lacks."""

    def __missing__(self, name: str) -> Tensor:
        why = f"the gradient of {name!r}, which is frozen or not shared"
        raise NotApplicable(f"this attack needs {why}; have it shared, or use dlg")


def observed_gradient(observation: Observation, *, signs_do: bool = False) -> dict[str, Tensor]:
    """The mean-loss gradient behind the update, by name: (T, *parameter). Signs alone are refused, unless they do.

    Of a weight difference it is exact for one step, the average gradient along the client's path for more, and little
    more than signs where the client's optimiser divides by sizes; see `gradient_behind`.
    """
    found = read_gradient(observation)
    if found.quality in (SIGNS, DIRECTIONS) and not signs_do:
        rule = observation.fact(Fact.LOCAL_TRAINING).optimizer
        raise NotApplicable(f"{rule} shares signs of gradients and not their sizes, which this attack needs; use dlg")
    return _Gradient(found.tensors)


def read_gradient(observation: Observation) -> GradientBehind:
    """The same, with how good it is."""
    if observation.update.kind == "gradient":
        return GradientBehind(observation.update.tensors, EXACT)
    local: Client = observation.fact(Fact.LOCAL_TRAINING)
    start = {name: p.detach() for name, p in observation.model.named_parameters()}
    return gradient_behind(observation.update.tensors, start, local, observation.fact(Fact.NUM_SAMPLES))


def without_search(
    began: float, inputs: Tensor | None, labels: Tensor | None, objective: Tensor, **more: Any
) -> Reconstruction:
    """What an attack claims that takes one step and evaluates no gradient, and `began` then by `time.perf_counter`."""
    ones = torch.ones(len(objective), dtype=torch.long)
    return Reconstruction(inputs, labels, objective, ones, 0 * ones, time.perf_counter() - began, **more)


def example_input(observation: Observation) -> Tensor:
    """One mid-grey sample (1, *shape) on the model's device and in its precision, to see the model run."""
    data: DataSpec = observation.fact(Fact.INPUT_SPEC)
    like = next(observation.model.parameters())
    return torch.full((1, *data.shape), 0.5, device=like.device, dtype=like.dtype)


def classifier_layer(observation: Observation) -> str:
    """Name of the linear layer that gives the logits; label rules read its gradient. Of several rounds, the first's."""
    model, several = observation.model, isinstance(observation.model, SeveralRounds)
    name = last_linear(model.get_submodule(FIRST_ROUND) if several else model, example_input(observation))
    if name is None:
        raise NotApplicable("label rules need a model that ends in one nn.Linear; use dlg, which optimises the label")
    return f"{FIRST_ROUND}.{name}" if several else name
