"""Re-identification: does a classifier of people still know who is on a recovered picture? (METHODS K9)

All recoveries count, not only the successful ones: to leave failures out would make every attack look good.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from leakgauge.metrics.intervals import rate
from leakgauge.types import Rate

TOP = (1, 3, 5)


def among_the_first(scores: Tensor, labels: Tensor, k: int) -> Tensor:
    """(R,) bool: is the true label among the k highest of scores (R, C)? Ties count against it, NaN is a miss."""
    own = scores.gather(1, labels[:, None])  # (R, 1)
    before = (scores >= own).sum(1)  # the label itself is one of them
    return (before <= k) & torch.isfinite(own[:, 0])


def hit_rates(scores: Tensor, labels: Tensor, failed: Tensor, top: Sequence[int] = TOP) -> Mapping[str, Rate]:
    """`top_1`, `top_3` ... over all R records; where `failed` (R,) is True nothing was recovered, which is a miss."""
    return {
        f"top_{k}": rate(int((among_the_first(scores, labels, k) & ~failed).sum()), len(labels), f"top-{k}")
        for k in top
    }


def chance(classes: int, top: Sequence[int] = TOP) -> Mapping[str, float]:
    """What guessing among so many people gives."""
    return {f"top_{k}": min(1.0, k / classes) for k in top}
