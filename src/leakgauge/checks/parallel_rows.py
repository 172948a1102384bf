"""Pairs of rows that are multiples of one another up to noise: MKOR's inconspicuous first layer."""

from __future__ import annotations

from collections.abc import Mapping

from scipy import stats

from leakgauge.checks._check import Check, Measured
from leakgauge.checks._neighbours import Neighbours
from leakgauge.checks._received import Received

_CHANCE = 1e-6  # that one pair of a clean layer is as parallel as the baseline
_SEVERAL = 4  # rows, so two pairs: a single pair of like units may be learnt


def measure(received: Received) -> Mapping[str, Measured]:
    return {layer.name: _measured(layer.rows) for layer in received.hidden() if len(layer.rows) >= _SEVERAL}


def _measured(rows: Neighbours) -> Measured:
    """The fourth largest cosine, 0 where the layer's own random pairs would reach it and 1 for exact multiples.

    The baseline is what the most parallel of all pairs has in a random layer whose cosines are as large on average.
    Training gives all rows a common direction, which raises the average, and the baseline with it.
    """
    R = len(rows)
    cosine = float(rows.cosine.abs().topk(_SEVERAL).values[-1])
    dimensions = 1 / max(rows.mean_square, 1e-12)
    pairs = R * (R - 1) / 2
    # The squared cosine of two random directions in d dimensions is Beta(1/2, (d - 1)/2).
    spread = max((dimensions - 1) / 2, 1e-6)
    baseline = float(stats.beta.isf(_CHANCE / pairs, 0.5, spread)) ** 0.5
    score = (cosine - baseline) / (1 - baseline) if baseline < 1 - 1e-6 else 0.0
    return Measured(
        max(0.0, min(1.0, score)),
        f"{int((rows.cosine.abs() > (1 + baseline) / 2).sum())} of {R} rows are nearly parallel to another one; the "
        f"fourth largest |cosine| is {cosine:.4f}, where the layer's other rows suggest {baseline:.3f} at most",
    )


CHECK = Check(
    id="parallel-rows",
    measure=measure,
    do="do not train on it: of such a pair one unit is active for every sample, which sorts samples by class",
)
