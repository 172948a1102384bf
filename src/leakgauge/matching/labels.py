"""Reading labels off the last layer's gradient: one sample's exactly, a batch's by counting.

For one sample the gradient of the logits is p - onehot(y): row i of the last weight's gradient is (p_i - [i = y]) h,
its bias entry p_i - [i = y]. Only entry y is negative (Zhao et al. 2020, iDLG).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from leakgauge.errors import NotApplicable
from leakgauge.matching.label_counts import RULES as COUNT_RULES
from leakgauge.matching.label_counts import chosen_rules
from leakgauge.matching.last_layer import Clues, clues_of, refuse_other_targets
from leakgauge.matching.targets import read_targets
from leakgauge.matching.updates import classifier_layer, observed_gradient
from leakgauge.matching.whole_counts import sorted_labels
from leakgauge.types import CROSS_ENTROPY, NLL_ON_LOGITS, ONE_CLASS, Client, Fact, Observation

RULES = ("auto", "bias", "row-sum")  # for one sample
INFER, OPTIMISE = SOURCES = ("infer", "optimise")  # where labels come from unless the threat model reveals them


def single_label(gradient: Mapping[str, Tensor], layer: str, rule: str = "auto") -> Tensor:
    """The label (T,) of the one sample behind each gradient.

    "bias" takes the most negative bias entry and needs no assumption. "row-sum" takes the most negative row of the
    weight and is right while the features are non-negative (sigmoid, ReLU). "auto" prefers the bias. Where a share s
    of the label is smoothed away, both are right as long as the model's p_y is below 1 - s.
    """
    bias = gradient.get(f"{layer}.bias")
    if bias is not None and rule != "row-sum":
        return bias.argmin(1)
    weight = gradient.get(f"{layer}.weight")
    if weight is None:
        raise NotApplicable(f"label rules read the gradient of {layer!r}, which is frozen or not shared; use dlg")
    return weight.sum(2).argmin(1)  # (T, C, d) -> (T, C) -> (T,)


def counted(clues: Clues, rule: str) -> tuple[Tensor, list[str]]:
    """How often each label occurs, (T, C), and the rule of each trial: as asked for or, for "auto", the best one."""
    rules = chosen_rules(clues) if rule == "auto" else [rule] * len(clues.bias)
    counts = torch.zeros_like(clues.bias, dtype=torch.long)
    for name in dict.fromkeys(rules):
        trials = torch.tensor([t for t, own in enumerate(rules) if own == name], device=counts.device)
        counts[trials] = COUNT_RULES[name](clues.take(trials))
    return counts, rules


def refuse_uncountable(local: Client, samples: int) -> None:
    """Label rules read predictions minus labels, or labels alone: no other loss leaves these in the last layer."""
    if local.kind_of_loss not in (CROSS_ENTROPY, NLL_ON_LOGITS):
        raise NotApplicable(f"label rules hold for {CROSS_ENTROPY}, and the clients' loss is {local.loss}; use dlg")
    if local.class_weights and (samples > 1 or local.label_smoothing):
        why = "with weights of classes the last layer shows weighed shares, and not how often a label occurs"
        raise NotApplicable(f"{why}; use dlg, which searches the labels")


def inferred_labels(observation: Observation, rule: str = "auto", single: str = "auto") -> Tensor:
    """The labels (T, N) behind each update, in rising order; of one sample by the rule `single`."""
    refuse_other_targets(observation)
    local: Client = observation.fact(Fact.LOCAL_TRAINING)
    samples: int = observation.fact(Fact.NUM_SAMPLES)
    refuse_uncountable(local, samples)
    if samples == 1:
        gradient = observed_gradient(observation, signs_do=True)
        return single_label(gradient, classifier_layer(observation), single)[:, None]
    clues = clues_of(observation)
    return sorted_labels(counted(clues, rule)[0], clues.samples)


def one_label(observation: Observation) -> Tensor | None:
    """The label (T,) of the one sample behind each update; None where targets are no single class or none is read."""
    try:
        return inferred_labels(observation)[:, 0]
    except NotApplicable:
        return None


def revealed_labels(observation: Observation) -> Tensor | None:
    """(T, N), or as targets are, if the threat model reveals them."""
    return observation.fact(Fact.LABELS) if observation.knows(Fact.LABELS) else None


def searched_labels(observation: Observation, source: str, single: str = "auto") -> Tensor | None:
    """The labels (T, N) for an attack that searches inputs: as revealed, or inferred; None where it searches them too.

    A model whose last layer cannot be read leaves its labels to the search.
    """
    labels = revealed_labels(observation)
    if labels is not None or source == OPTIMISE:
        return labels
    try:
        if observation.fact(Fact.INPUT_SPEC).target != ONE_CLASS:
            exact = read_targets(observation).exact
            return None if exact is None else exact.to(next(iter(observation.update.tensors.values())))
        return inferred_labels(observation, single=single)
    except NotApplicable:
        return None


def labels_can_be_read(observation: Observation) -> bool:
    """Are the labels revealed, or is the gradient there of a last layer that shows them?"""
    try:
        if not observation.knows(Fact.LABELS) and observation.fact(Fact.INPUT_SPEC).target != ONE_CLASS:
            return read_targets(observation).exact is not None
        layer = "" if observation.knows(Fact.LABELS) else classifier_layer(observation)
    except NotApplicable:
        return False
    return not layer or not {f"{layer}.weight", f"{layer}.bias"}.isdisjoint(observation.update.tensors)
