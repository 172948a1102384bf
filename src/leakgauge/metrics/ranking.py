"""How well scores tell two groups apart: the area under the ROC curve, with DeLong's interval."""

from __future__ import annotations

import math

import torch
from scipy.special import ndtri
from torch import Tensor

from leakgauge.errors import BadInput
from leakgauge.metrics.intervals import clopper_pearson
from leakgauge.types import Interval


def area_under_curve(scores: Tensor, positive: Tensor, confidence: float = 0.95) -> Interval:
    """The chance that a positive scores above a negative, ties counting half: (T,) scores and (T,) bool.

    A half is guessing. The interval is DeLong et al.'s (1988). It has no width where the groups do not overlap at all;
    then it is the exact one for that many of that many, counted in the smaller group.
    """
    high, low = scores[positive].double(), scores[~positive].double()
    if not len(high) or not len(low):
        raise BadInput(
            "scores of a ranking",
            allowed="from both groups",
            got=f"{len(high)} with and {len(low)} without",
            do="use two trials or more",
        )
    if not bool(torch.isfinite(scores).all()):
        raise BadInput("scores of a ranking", allowed="finite", got="NaN or infinity", do="find where they come from")
    wins = (high[:, None] > low).double() + 0.5 * (high[:, None] == low).double()  # (P, N)
    area = float(wins.mean())
    smaller = min(len(high), len(low))
    if smaller == 1:
        return Interval(area, None, None)
    variance = float(wins.mean(1).var() / len(high) + wins.mean(0).var() / len(low))
    if variance == 0 and area in (0.0, 1.0):
        return Interval(area, *clopper_pearson(round(area) * smaller, smaller, confidence))
    reach = float(ndtri((1 + confidence) / 2)) * math.sqrt(variance)
    return Interval(area, max(0.0, area - reach), min(1.0, area + reach))
