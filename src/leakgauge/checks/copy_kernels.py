"""Convolutions that copy or shift their input instead of filtering it: MKOR carries the picture through them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from scipy import stats
from torch import Tensor

from leakgauge.checks._check import Check, Measured
from leakgauge.checks._received import CONVOLUTION, Received

_CHANCE = 1e-6  # that a random filter is as concentrated as the baseline
_FEWEST = 5  # weights of a filter; one with fewer is often a single tap by chance


def measure(received: Received) -> Mapping[str, Measured]:
    """Only convolutions that can be judged; a picture must get through all of them, so the least conspicuous counts."""
    found = {layer.name: _measured(layer.weight) for layer in received.of_kind(CONVOLUTION)}
    return {name: measured for name, measured in found.items() if measured is not None}


def _measured(weight: Tensor) -> Measured | None:
    """The second largest share of one weight in its filter's energy: 0 for random filters, 1 for single taps."""
    energy = weight.square()
    total = energy.sum(1)
    live = total > 0
    if not bool(live.any()):
        return None
    share = (energy.max(1).values[live] / total[live]).double()
    size = _effective_size(weight[live])
    if size < _FEWEST:
        return None
    # A Gaussian weight's share of its filter's energy is Beta(1/2, (n - 1)/2), and there are n of them.
    baseline = float(stats.beta.isf(_CHANCE / size, 0.5, (size - 1) / 2))
    second = float(share.topk(min(2, len(share))).values[-1])
    return Measured(
        max(0.0, (second - baseline) / (1 - baseline)),
        f"{int((share > max(0.5, baseline)).sum())} of {len(weight)} filters have over half of their energy in one of "
        f"{weight.shape[1]} weights; random ones stay below {baseline:.2f}",
    )


def _effective_size(filters: Tensor) -> float:
    """Weights per filter that pruning left, on average over the layer.

    A layer in which every filter is one tap is not taken for a pruned one: pruning does not spread that evenly.
    """
    kept = (filters != 0).sum(1)
    if bool((kept == 1).all()) and _too_even(filters):
        return float(filters.shape[1])
    return float(kept.double().mean())


def _too_even(filters: Tensor) -> bool:
    taps = filters.abs().amax(1)
    equal = bool((taps - taps[0]).abs().max() <= 1e-6 * taps[0])
    if equal and (len(taps) > 1 or float(taps[0]) == 1):
        return True
    # Chance that as many survivors as there are filters fall into one each.
    count = torch.arange(1, len(taps) + 1, dtype=torch.float64)
    return float((count / len(taps)).log().sum()) < -7


CHECK = Check(
    id="copy-kernels",
    measure=measure,
    do="do not train on it: the picture reaches the dense layers unfiltered and can be read from their gradients",
    everywhere=True,
)
