"""Reading labels off the last layer's gradient: one sample's exactly, a batch's by counting.

For one sample the gradient of the logits is p - onehot(y): row i of the last weight's gradient is (p_i - [i = y]) h,
its bias entry p_i - [i = y]. Only entry y is negative (Zhao et al. 2020, iDLG).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from leakgauge.errors import NotApplicable
from leakgauge.matching.label_choice import chosen_rules
from leakgauge.matching.label_counts import RULES as COUNT_RULES
from leakgauge.matching.last_layer import Clues, clues_of
from leakgauge.matching.updates import classifier_layer, observed_gradient
from leakgauge.matching.whole_counts import sorted_labels
from leakgauge.types import ONE_CLASS, Fact, Observation

RULES = ("auto", "bias", "row-sum")  # for one sample
INFER, OPTIMISE = SOURCES = ("infer", "optimise")  # where labels come from unless the threat model reveals them


def single_label(gradient: Mapping[str, Tensor], layer: str, rule: str = "auto") -> Tensor:
    """The label (T,) of the one sample behind each gradient.

    "bias" takes the most negative bias entry and needs no assumption. "row-sum" takes the most negative row of the
    weight and is right while the features are non-negative (sigmoid, ReLU). "auto" prefers the bias.
    """
    bias = gradient.get(f"{layer}.bias")
    if bias is not None and rule != "row-sum":
        return bias.argmin(1)
    weight = gradient.get(f"{layer}.weight")
    if weight is None:
        raise NotApplicable(f"label rules read the gradient of {layer!r}, which is frozen or not shared; use dlg")
    return weight.sum(2).argmin(1)  # (T, C, d) -> (T, C) -> (T,)


def rules_for(clues: Clues, rule: str) -> list[str]:
    """The rule for each trial: the one that was asked for or, for "auto", the best one."""
    return chosen_rules(clues) if rule == "auto" else [rule] * len(clues.bias)


def counted(clues: Clues, rules: Sequence[str]) -> Tensor:
    """How often each label occurs, (T, C), each trial by its own rule."""
    counts = torch.zeros_like(clues.bias, dtype=torch.long)
    for name in dict.fromkeys(rules):
        trials = torch.tensor([t for t, own in enumerate(rules) if own == name], device=counts.device)
        counts[trials] = COUNT_RULES[name](clues.take(trials))
    return counts


def inferred_labels(observation: Observation, rule: str = "auto", single: str = "auto") -> Tensor:
    """The labels (T, N) behind each update, in rising order; of one sample by the rule `single`."""
    samples: int = observation.fact(Fact.NUM_SAMPLES)
    if samples == 1:
        return single_label(observed_gradient(observation, signs_do=True), classifier_layer(observation), single)[
            :, None
        ]
    clues = clues_of(observation)
    return sorted_labels(counted(clues, rules_for(clues, rule)), samples)


def searched_labels(observation: Observation, source: str, single: str = "auto") -> Tensor | None:
    """The labels (T, N) for an attack that searches inputs: as revealed, or inferred; None where it searches them too.

    A model whose last layer cannot be read leaves its labels to the search.
    """
    if observation.knows(Fact.LABELS):
        labels: Tensor = observation.fact(Fact.LABELS)
        return labels
    if source == OPTIMISE or observation.fact(Fact.INPUT_SPEC).target != ONE_CLASS:
        return None
    try:
        return inferred_labels(observation, single=single)
    except NotApplicable:
        return None


def labels_can_be_read(observation: Observation) -> bool:
    """Are the labels revealed, or is the gradient there of a last layer that shows them?"""
    if observation.knows(Fact.LABELS):
        return True
    try:
        layer = classifier_layer(observation)
    except NotApplicable:
        return False
    return not {f"{layer}.weight", f"{layer}.bias"}.isdisjoint(observation.update.tensors)
