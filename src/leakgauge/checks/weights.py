"""Single weights that training does not produce: huge, zero, or alone in their filter."""

from __future__ import annotations

import torch
from scipy import stats
from torch import Tensor

from leakgauge.checks._received import CONVOLUTION, LINEAR, SCALE, Layer, Received
from leakgauge.checks.suspicion import Found, caution, check

_CHANCE = 1e-6  # that a random filter is as concentrated as the baseline
_SMALL = 5  # weights of a filter; one with fewer is often a single tap by chance
_SEVERAL = 4  # weights that must stick out
_FEWEST = 64  # weights of a layer that can be judged
_SAMPLE = 1_000_000  # weights are enough for a median
_QUIET = 0.01  # of the largest row norm: a class below has next to no weights
_PRUNED = 0.6  # share of weights below which a model has been pruned
_EMPTIED = 1e-4  # chance that pruning leaves so many classes without weights


@check(
    "do not train on it: the picture reaches the dense layers unfiltered and can be read from their gradients",
    everywhere=True,
)
def copy_kernels(received: Received) -> Found:
    """Convolutions that copy or shift their input, as MKOR's: the second largest share of a weight in its filter.

    Of the filter's energy: 0 for random filters, 1 for single taps. A picture must get through all convolutions that
    can be judged, so the least conspicuous counts.
    """
    for layer in received.of_kind(CONVOLUTION):
        energy = layer.weight.square()
        live = energy.sum(1) > 0
        size = _effective_size(layer.weight[live]) if bool(live.any()) else 0
        if size < _SMALL:
            continue
        share = (energy.max(1).values[live] / energy.sum(1)[live]).double()
        # A Gaussian weight's share of its filter's energy is Beta(1/2, (n - 1)/2), and there are n of them.
        baseline = float(stats.beta.isf(_CHANCE / size, 0.5, (size - 1) / 2))
        second = float(share.topk(min(2, len(share))).values[-1])
        filters, weights = layer.weight.shape
        evidence = (
            f"{int((share > max(0.5, baseline)).sum())} of {filters} filters have over half of their energy in one of "
            f"{weights} weights; random ones stay below {baseline:.2f}"
        )
        yield layer.name, max(0.0, (second - baseline) / (1 - baseline)), evidence


def _effective_size(filters: Tensor) -> float:
    """Weights per filter that pruning left, on average over the layer.

    A layer in which every filter is one tap is not taken for a pruned one: pruning does not spread that evenly.
    """
    kept = (filters != 0).sum(1)
    taps = filters.abs().amax(1)
    if bool((kept == 1).all()):
        equal = bool((taps - taps[0]).abs().max() <= 1e-6 * taps[0])
        # Chance that as many survivors as there are filters fall into one each.
        count = torch.arange(1, len(taps) + 1, dtype=torch.float64)
        by_chance = float((count / len(taps)).log().sum()) >= -7
        if (equal and (len(taps) > 1 or float(taps[0]) == 1)) or not by_chance:
            return float(filters.shape[1])
    return float(kept.double().mean())


@check("do not train on it: biases of this size decide by themselves which samples leave a gradient")
def huge_bias(received: Received) -> Found:
    """Biases that switch units or classes on or off: |bias| over one plus the most that inputs in [0, 1] can add."""
    for layer in received.layers:
        if layer.bias is not None:
            reach = 1 + layer.weight.abs().sum(1)
            ratio = layer.bias.abs() / reach
            worst = int(ratio.argmax())
            evidence = (
                f"the bias of unit {worst} is {float(layer.bias[worst]):.4g}, and inputs in [0, 1] can move the unit "
                f"by {float(reach[worst]) - 1:.3g} at most"
            )
            yield layer.name, float(ratio[worst]), evidence


@check("do not train on it: a few links that drown all others tie single units to single classes")
def huge_links(received: Received) -> Found:
    """The enlarged links by which MKOR sorts classes: the fourth largest weight over the median of non-zero ones."""
    for layer in received.of_kind(LINEAR):
        flat = layer.weight.flatten()
        some = flat[:: max(1, len(flat) // _SAMPLE)]
        some = some[some != 0]
        if layer.name == received.last or len(some) < _FEWEST:
            continue
        # It lies in one of the four rows with the largest weights: looking at these alone spares a sort of the layer.
        low, high = layer.weight.aminmax(dim=1)
        rows = torch.maximum(high, -low).topk(min(_SEVERAL, len(low))).indices
        large = float(layer.weight[rows].abs().flatten().topk(_SEVERAL).values[-1])
        score = large / float(some.abs().median())
        yield layer.name, score, f"several weights are {score:.0f} times the median; the fourth largest is {large:.3g}"


@check("do not train on it: only the samples of the other classes would leave a gradient, alone in their batch")
def silent_classes(received: Received) -> Found:
    """Class and feature fishing, where most classes have no weights: one minus the median over the largest row norm.

    Not judged: a last layer of zeros, which is how some networks start, and one that pruning may have emptied.
    """
    for layer in received.of_kind(LINEAR):
        norms = torch.linalg.vector_norm(layer.weight, dim=1)
        if layer.name != received.last or len(norms) < 2 or float(norms.max()) == 0:
            continue
        quiet = int((norms < _QUIET * norms.max()).sum())
        if not quiet or not _may_be_pruned(quiet, layer, received):
            score = 1 - float(norms.median() / norms.max())  # of two rows the median is the smaller
            yield layer.name, score, f"{quiet} of {len(norms)} classes have next to no weights"


def _may_be_pruned(quiet: int, last: Layer, received: Received) -> bool:
    """Would this many of the rows be empty by chance if the last layer were pruned as the others are?"""
    others = [layer.weight for layer in received.layers if layer.kind != SCALE and layer.name != last.name]
    kept = sum(int(torch.count_nonzero(weight)) for weight in others)
    density = kept / sum(weight.numel() for weight in others) if others else 1.0
    if density < _PRUNED:  # then some layers lose more than others
        density = min(density, int(torch.count_nonzero(last.weight)) / last.weight.numel())
    rows, size = last.weight.shape
    return float(stats.binom.sf(quiet - 1, rows, (1 - density) ** size)) > _EMPTIED


@caution("accept it in the first round only; later it serves to count your labels")
def empty_layer(received: Received) -> Found:
    """1 for a last layer of zeros: all predictions are the same, so its update says how often each label occurs."""
    for layer in received.layers:
        if layer.name == received.last:
            yield layer.name, float(not bool(layer.weight.any())), "all weights of the last layer are zero"


@caution("ask whether the model was pruned; zeros also sort what reaches each unit")
def mostly_zeros(received: Received) -> Found:
    """Share of a layer's weights that are zero: the first of the three checks that Wang et al. 2023 give a client."""
    for layer in received.layers:
        if layer.kind != SCALE:
            share = float((layer.weight == 0).float().mean())
            yield layer.name, share, f"{share:.1%} of its {layer.weight.numel():,} weights are zero"
