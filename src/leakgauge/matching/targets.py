"""What the last layer's bias says of targets that are no single class: several classes, numbers, labels in a row.

The bias's gradient is the mean over the batch of the loss's slope in the outputs. For the binary cross-entropy that is
(prediction - target) / outputs: of one sample it is negative exactly where the class is there; of a batch it gives the
expected count of each class, with the predictions on public or made-up samples in place of the batch's. For the squared
error it is twice the mean residual over outputs, so the batch's mean target is the mean prediction less that. Of labels
in a row under cross-entropy the counts over all places stand where a batch's labels stand for single ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.engine.gradients import working_model
from leakgauge.errors import NotApplicable
from leakgauge.matching.last_layer import CANNOT, TARGET_WORDS, dummy_inputs
from leakgauge.matching.updates import classifier_layer, observed_gradient
from leakgauge.types import CROSS_ENTROPY, QUANTITIES, SEQUENCE, SEVERAL_CLASSES, Client, DataSpec, Fact, Observation

_NAMED = 8  # outputs
_PASS = 128  # samples at once


@dataclass(frozen=True)
class ReadTargets:
    """What is read of the targets behind each update, and in which words."""

    values: Tensor  # (T, outputs): expected counts of classes, or the mean target
    sure: Tensor  # (T, outputs) bool: classes that are there for certain
    exact: Tensor | None  # (T, N, outputs) where nothing is left open: one sample's classes
    words: tuple[str, ...]  # one for each update
    residual: Tensor | None = None  # (T, outputs): how far outputs are above the targets on average


def read_targets(observation: Observation) -> ReadTargets:
    """Refused, with the reason, where the update does not show them."""
    data: DataSpec = observation.fact(Fact.INPUT_SPEC)
    local: Client = observation.fact(Fact.LOCAL_TRAINING)
    rule = _RULES.get((data.target, local.loss))
    if rule is None:
        raise NotApplicable(f"{CANNOT}: no rule is known for {local.loss} of {TARGET_WORDS[data.target]}")
    layer = classifier_layer(observation)
    bias = observed_gradient(observation, signs_do=data.target != QUANTITIES).get(f"{layer}.bias")
    if bias is None:
        raise NotApplicable(f"{CANNOT}: {layer!r} has no bias in the update")
    return rule(observation, bias.double())


def _classes(observation: Observation, bias: Tensor) -> ReadTargets:
    samples, outputs = observation.fact(Fact.NUM_SAMPLES), bias.shape[1]
    sure = bias < 0
    if samples == 1:
        exact = sure[:, None].to(bias) if bool((bias != 0).all()) else None  # a zero was left out on the way
        return ReadTargets(sure.to(bias), sure, exact, tuple(f"the sample's classes: {_listed(row)}" for row in sure))
    counts = (samples * (_mean_output(observation, torch.sigmoid) - outputs * bias)).clamp(0, samples)
    counts = torch.where(sure, counts.clamp_min(1), counts)
    words = [
        f"samples expected of each class: {_numbers(row)}; surely there: {_listed(own)}"
        for row, own in zip(counts, sure, strict=True)
    ]
    return ReadTargets(counts, sure, None, tuple(words))


def _residual(observation: Observation, bias: Tensor) -> ReadTargets:
    residual = bias.shape[1] * bias / 2
    mean = _mean_output(observation, lambda output: output) - residual
    words = [
        f"outputs are off their targets by {_numbers(off)} on average: the mean target is about {_numbers(row)}"
        for off, row in zip(residual, mean, strict=True)
    ]
    return ReadTargets(mean, torch.zeros_like(bias).bool(), None, tuple(words), residual)


def _places(observation: Observation, bias: Tensor) -> ReadTargets:
    data: DataSpec = observation.fact(Fact.INPUT_SPEC)
    places = observation.fact(Fact.NUM_SAMPLES) * math.prod(data.target_shape)
    sure = bias < 0
    counts = (places * (_mean_output(observation, lambda logits: torch.softmax(logits, -1)) - bias)).clamp(0, places)
    words = [f"labels that surely occur in the {places} places: {_listed(row)}" for row in sure]
    return ReadTargets(counts, sure, None, tuple(words))


# (what a target is, the client's loss) -> what its last bias shows
_RULES: Mapping[tuple[str, str], Callable[[Observation, Tensor], ReadTargets]] = {
    (SEVERAL_CLASSES, "bce"): _classes,
    (QUANTITIES, "mse"): _residual,
    (SEQUENCE, CROSS_ENTROPY): _places,
}


def _mean_output(observation: Observation, of: Callable[[Tensor], Tensor]) -> Tensor:
    """(outputs,): the mean of `of(outputs)` over public samples, or made-up ones where none are known."""
    if observation.knows(Fact.PUBLIC_DATA):
        inputs = observation.fact(Fact.PUBLIC_DATA).inputs[0]
    else:
        inputs = dummy_inputs(observation.fact(Fact.INPUT_SPEC).shape)
    like = next(observation.model.parameters())
    model = working_model(observation.model, observation.fact(Fact.LOCAL_TRAINING).batchnorm)
    with torch.no_grad():
        made = torch.cat([of(model(part).double()) for part in torch.split(inputs.to(like), _PASS)])
    return made.reshape(-1, made.shape[-1]).mean(0)


def _listed(there: Tensor) -> str:
    found = there.nonzero()[:, 0].tolist()
    return ", ".join(map(str, found[:_NAMED])) + (" ..." if len(found) > _NAMED else "") if found else "none"


def _numbers(row: Tensor) -> str:
    return ", ".join(f"{v:.3g}" for v in row[:_NAMED].tolist()) + (" ..." if len(row) > _NAMED else "")
