"""What an update shows of the layer that gives the logits, and what the known network says about other inputs.

For a batch of N samples with features h, predictions p and one-hot labels y the gradient of row c of that layer is
mean((p_c - y_c) h), and of its bias mean(p_c - y_c). The label rules read these two.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from leakgauge.engine.gradients import working_model
from leakgauge.engine.randomness import normal
from leakgauge.errors import NotApplicable
from leakgauge.matching.shared_precision import shared_precision
from leakgauge.matching.updates import classifier_layer, observed_gradient
from leakgauge.models.locked_norm import FIRST_ROUND, SeveralRounds
from leakgauge.types import (
    CROSS_ENTROPY,
    ONE_CLASS,
    QUANTITIES,
    SEQUENCE,
    SEVERAL_CLASSES,
    Batch,
    Client,
    Fact,
    Observation,
)

CANNOT = "labels cannot be read here"
TARGET_WORDS = {
    ONE_CLASS: "one class a sample",
    SEVERAL_CLASSES: "several classes a sample",
    QUANTITIES: "numbers",
    SEQUENCE: "labels in a row",
}

_DUMMIES = 16  # of each kind: black, white, noise
_PASS = 128  # samples in one forward pass
_DEVIATIONS = 8.0  # of the noise that an entry must be below zero to prove its label
_ROUNDING = 1e-3  # relative to the largest entry; or the step of the numbers shared, if that is coarser
_RIDGE = 1e-3  # of the stand-in for a bias, relative to the features' mean square


@dataclass(frozen=True)
class Probe:
    """The last layer on inputs that the attacker has. The first axis is 1 for one model, T where each has its own."""

    features: Tensor  # (1 or T, S, d), float64
    predictions: Tensor  # (1 or T, S, C)
    weight: Tensor  # (1 or T, C, d)
    offset: Tensor  # (1 or T, C), zeros where the layer has no bias
    labels: Tensor | None  # (S,), None for dummy inputs

    @property
    def mean_prediction(self) -> Tensor:
        """(1 or T, C)"""
        return self.predictions.mean(1)

    @property
    def shares(self) -> Tensor:
        """(C, S) weights that average over the samples of each class; over all where a class has none."""
        classes, samples = self.predictions.shape[2], self.predictions.shape[1]
        if self.labels is None:
            return self.predictions.new_full((classes, samples), 1 / samples)
        of_class = nn.functional.one_hot(self.labels, classes).T.to(self.predictions)  # (C, S)
        count = of_class.sum(1, keepdim=True)
        return torch.where(count > 0, of_class / count.clamp_min(1), 1 / samples)

    @property
    def label_shares(self) -> Tensor:
        """(C,) share of each label; equal where there are none."""
        classes = self.predictions.shape[2]
        labels = torch.arange(classes) if self.labels is None else self.labels
        return torch.bincount(labels, minlength=classes).to(self.predictions) / len(labels)

    def take(self, rows: Tensor) -> Probe:
        """With some of its samples."""
        features, predictions = self.features[:, rows], self.predictions[:, rows]
        labels = None if self.labels is None else self.labels[rows]
        return dataclasses.replace(self, features=features, predictions=predictions, labels=labels)


@dataclass(frozen=True)
class Clues:
    """All that a label rule reads."""

    rows: Tensor  # (T, C, d), gradient of the weight, float64
    bias: Tensor  # (T, C), gradient of the bias, or what stands in for it
    samples: int  # N
    probe: Probe
    noise: Tensor  # (T,) scale of what is not a gradient in each entry
    has_bias: bool

    def take(self, trials: Tensor) -> Clues:
        """For some trials of one shared model."""
        return dataclasses.replace(self, rows=self.rows[trials], bias=self.bias[trials], noise=self.noise[trials])


def clues_of(observation: Observation, *, public: bool = True) -> Clues:
    """What the observation shows of its last layer; with `public` the probe is public data where it is known."""
    refuse_other_targets(observation)
    observation = _first_round(observation)
    layer = classifier_layer(observation)
    gradient = observed_gradient(observation)
    rows, bias = gradient.get(f"{layer}.weight"), gradient.get(f"{layer}.bias")
    if rows is None and bias is None:
        raise NotApplicable(f"label rules read the gradient of {layer!r}, which is frozen or not shared; use dlg")
    probe = _probe(observation, layer, public)
    if rows is None:  # all that is seen is the bias: a layer whose only feature is the constant 1
        assert bias is not None
        rows = bias[..., None]
        constant, nothing = torch.ones_like(probe.features[..., :1]), 0 * probe.weight[..., :1]
        probe = dataclasses.replace(probe, features=constant, weight=nothing)
    clues = make_clues(rows, bias, observation.fact(Fact.NUM_SAMPLES), probe)
    return _unsmoothed(clues, observation.fact(Fact.LOCAL_TRAINING))


def _unsmoothed(clues: Clues, local: Client) -> Clues:
    """As labels without smoothing would show them, if the samples of the batch are like those of the probe.

    With a share s of every label spread over C classes row c is mean((p_c - (1 - s) y_c - s / C) h). The mean of
    (p_c - y_c) h is that plus s mean((1 / C - p_c) h), all over 1 - s.
    """
    share, probe = local.label_smoothing, clues.probe
    if not share:
        return clues
    spread = 1 / probe.predictions.shape[2] - probe.predictions  # (1 or T, S, C)
    rows = (clues.rows + share * spread.mT @ probe.features / probe.features.shape[1]) / (1 - share)
    bias = (clues.bias + share * spread.mean(1)) / (1 - share)
    return dataclasses.replace(clues, rows=rows, bias=bias)


def refuse_other_targets(observation: Observation) -> None:
    """For rules that read one class a sample."""
    target = observation.fact(Fact.INPUT_SPEC).target
    if target != ONE_CLASS:
        raise NotApplicable(f"{CANNOT} as one class a sample: targets are {TARGET_WORDS[target]}")


def proven_labels(observation: Observation) -> Tensor | None:
    """How many labels the update proves to be there, without statistics (T,); None where it cannot be read.

    Under cross-entropy an entry of the bias gradient is negative only if its label is in the batch, also with weights
    of classes; with smoothed labels only if it is below minus the share that each class gets. A class counts where its
    entry is below by more than noise or rounding could make it; a batch of N proves N labels at most.
    """
    local: Client = observation.fact(Fact.LOCAL_TRAINING)
    if local.kind_of_loss != CROSS_ENTROPY or (local.label_smoothing and local.class_weights):
        return None
    try:
        clues = clues_of(observation)
        bias = observed_gradient(_first_round(observation)).get(f"{classifier_layer(_first_round(observation))}.bias")
    except NotApplicable:
        return None
    if bias is None:
        return None
    bias = bias.double() + local.label_smoothing / bias.shape[1]
    step = shared_precision(observation.update.tensors.values()).relative  # a client may also have computed in it
    rounding = max(_ROUNDING, step) * bias.abs().amax(1)
    surely = bias < -torch.maximum(_DEVIATIONS * clues.noise, rounding)[:, None]
    return surely.sum(1).clamp_max(clues.samples)


def _first_round(observation: Observation) -> Observation:
    """Of several rounds of one client the first alone: the labels are the same in all."""
    if not isinstance(observation.model, SeveralRounds):
        return observation
    update, prefix = observation.update, f"{FIRST_ROUND}."
    tensors, buffers = (
        {n.removeprefix(prefix): t for n, t in named.items() if n.startswith(prefix)}
        for named in (update.tensors, update.buffers)
    )
    alone = dataclasses.replace(update, tensors=tensors, buffers=buffers)
    return dataclasses.replace(observation, model=observation.model.get_submodule(FIRST_ROUND), update=alone)


def make_clues(rows: Tensor, bias: Tensor | None, samples: int, probe: Probe) -> Clues:
    """Clues from gradients of the last layer's weight (T, C, d) and bias (T, C) or None."""
    rows = rows.double()
    entries = rows if bias is None else torch.cat((bias.double()[..., None], rows), 2)
    # Every column of a true gradient sums to zero over the classes, because predictions and labels sum to one.
    noise = (entries.sum(1) ** 2).mean(1).div(rows.shape[1]).sqrt()
    stand_in = rows @ _as_constant(probe.features)[..., None] if bias is None else bias.double()[..., None]
    return Clues(rows, stand_in[..., 0], samples, probe, noise, bias is not None)


def _as_constant(features: Tensor) -> Tensor:
    """Weights (1 or T, d) under which every feature vector (1 or T, S, d) comes near to 1: a bias for a layer without.

    They turn the weight's gradient into what a bias would have shown.
    """
    size = features.shape[1]
    scale = (features**2).sum(2).mean(1).clamp_min(torch.finfo(features.dtype).tiny)  # (1 or T,)
    gram = features @ features.mT + _RIDGE * scale[:, None, None] * torch.eye(size).to(features)
    combination: Tensor = torch.linalg.solve(gram, torch.ones_like(features[..., :1]))  # (1 or T, S, 1)
    return (features.mT @ combination)[..., 0]


def _probe(observation: Observation, layer: str, public: bool) -> Probe:
    if public and observation.knows(Fact.PUBLIC_DATA):
        known: Batch = observation.fact(Fact.PUBLIC_DATA)
        inputs, labels = known.inputs[0], known.labels[0]
    else:
        inputs, labels = dummy_inputs(observation.fact(Fact.INPUT_SPEC).shape), None
    like = next(observation.model.parameters())
    model = working_model(observation.model, observation.fact(Fact.LOCAL_TRAINING).batchnorm)
    module, features = model.get_submodule(layer), list[Tensor]()
    with torch.no_grad(), module.register_forward_pre_hook(lambda _, args: features.append(args[0].double())):
        logits = [model(part).double() for part in torch.split(inputs.to(like), _PASS)]
    weight = module.get_parameter("weight").detach().double()
    offset = weight.new_zeros(len(weight)) if module.bias is None else module.get_parameter("bias").detach().double()
    labels, predictions = None if labels is None else labels.to(like.device), torch.softmax(torch.cat(logits), -1)
    return Probe(torch.cat(features)[None], predictions[None], weight[None], offset[None], labels)


def dummy_inputs(shape: Sequence[int]) -> Tensor:
    """Black, white and N(0, 1) samples (S, *shape) in turn, for attackers without data of their own."""
    noise = normal(range(_DUMMIES), "dummy-inputs", shape)
    return torch.stack((torch.zeros_like(noise), torch.ones_like(noise), noise), 1).flatten(0, 1)
