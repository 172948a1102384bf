"""Reading one sample's label off the last layer's gradient (Zhao et al. 2020, iDLG).

For one sample the gradient of the logits is p - onehot(y): row i of the last weight's gradient is (p_i - [i = y]) h,
its bias entry p_i - [i = y]. Only entry y is negative.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from leakgauge.errors import NotApplicable

RULES = ("auto", "bias", "row-sum")


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
        raise NotApplicable(f"label rules read the gradient of {layer!r}, which is frozen in this model; use dlg")
    return weight.sum(2).argmin(1)  # (T, C, d) -> (T, C) -> (T,)
