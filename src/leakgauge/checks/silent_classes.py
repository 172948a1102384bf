"""A last layer that listens to one class or one feature only: class fishing and feature fishing."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from scipy import stats
from torch import Tensor

from leakgauge.checks._check import Check, Measured
from leakgauge.checks._received import LINEAR, SCALE, Received

_QUIET = 0.01  # of the largest row norm: a class below has next to no weights
_PRUNED = 0.6  # share of weights below which a model has been pruned
_CHANCE = 1e-4  # that pruning leaves so many classes without weights


def measure(received: Received) -> Mapping[str, Measured]:
    """One minus the median over the largest row norm.

    Not judged: a last layer of zeros, which is how some networks start, and one that pruning may have emptied.
    """
    found = {}
    for layer in received.of_kind(LINEAR):
        norms = torch.linalg.vector_norm(layer.weight, dim=1)
        if layer.name != received.last or len(norms) < 2 or float(norms.max()) == 0:
            continue
        quiet = int((norms < _QUIET * norms.max()).sum())
        if quiet and _may_be_pruned(quiet, layer.weight, _density_elsewhere(received)):
            continue
        score = 1 - float(norms.median() / norms.max())  # of two rows the median is the smaller
        found[layer.name] = Measured(score, f"{quiet} of {len(norms)} classes have next to no weights")
    return found


def _density_elsewhere(received: Received) -> float:
    """Share of weights that are not zero in all other layers; 1 where there are none."""
    others = [layer.weight for layer in received.layers if layer.kind != SCALE and layer.name != received.last]
    kept = sum(int(torch.count_nonzero(weight)) for weight in others)
    return kept / sum(weight.numel() for weight in others) if others else 1.0


def _may_be_pruned(quiet: int, weight: Tensor, density: float) -> bool:
    """Would this many of the rows be empty by chance if the last layer were pruned as the others are?"""
    rows, size = weight.shape
    if density < _PRUNED:  # then some layers lose more than others
        density = min(density, int(torch.count_nonzero(weight)) / weight.numel())
    return float(stats.binom.sf(quiet - 1, rows, (1 - density) ** size)) > _CHANCE


CHECK = Check(
    id="silent-classes",
    measure=measure,
    do="do not train on it: only the samples of the other classes would leave a gradient, alone in their batch",
)
