"""From estimates to whole numbers: counts per class that are at least zero and sum to the size of the batch."""

from __future__ import annotations

import torch
from torch import Tensor

_LEAST_IMPACT = 1e-9  # of a sample, relative to the largest score: so that rounds differ
_BISECTIONS = 60  # halvings until a level is known to the last digit
_ALMOST = 1e-6  # an estimate this close below a whole number is that number


def nearest_counts(estimate: Tensor, samples: int, least: Tensor | None = None) -> Tensor:
    """Whole counts (T, C) near `estimate` (T, C) that sum to `samples` and are nowhere below `least` (T, C).

    The estimate is first moved onto the real numbers that meet these conditions, as little as possible, and then
    rounded by largest remainder. A class at -inf stays at its least. `least` must leave room.
    """
    low = torch.zeros_like(estimate) if least is None else least.to(estimate)
    left, above = samples - low.sum(1, keepdim=True), estimate - low  # (T, 1), (T, C)
    falling = above.sort(1, descending=True).values
    over = (falling.cumsum(1) - left) / torch.arange(1, above.shape[1] + 1, device=above.device)
    support = (falling > over).sum(1, keepdim=True).clamp_min(1)
    inside = (above - over.gather(1, support - 1)).clamp_min(0)  # the nearest point of at least zero that sums to left
    whole = (inside + _ALMOST).floor()
    remainder = (inside - whole).where(estimate > -torch.inf, inside.new_tensor(-torch.inf))
    order = remainder.argsort(dim=1, descending=True, stable=True).argsort(1)
    return (low + whole + (order < left - whole.sum(1, keepdim=True))).round().long()


def ranks(score: Tensor) -> Tensor:
    """(T, C): 0 for the lowest."""
    return score.argsort(dim=1, stable=True).argsort(1)


def counts_by_impact(score: Tensor, impact: Tensor, samples: int, offset: Tensor | float = 0.0) -> Tensor:
    """Counts (T, C) by the two steps of LLG from a score (T, C) that every sample of a class lowers by |impact| (T,).

    First each class with a negative score counts once (the most negative ones, if there are more than samples). Then,
    sample by sample, the class with the lowest score is counted and relieved of one impact. `offset` is taken off the
    scores between the steps.
    """
    present = (score < 0) & (ranks(score) < samples)
    counts = present.long()
    least = _LEAST_IMPACT * score.abs().amax(1, keepdim=True) + torch.finfo(score.dtype).tiny
    step = torch.maximum(impact.neg()[:, None], least)  # (T, 1)
    return counts + _lowest(score + present * step - offset, step, samples - counts.sum(1, keepdim=True))


def _lowest(score: Tensor, step: Tensor, left: Tensor) -> Tensor:
    """Counts (T, C) after `left` (T, 1) rounds of: count the lowest score, raise it by `step` (T, 1).

    All rounds at once: a score is counted as often as it fits below a level, and the level is found by bisection.
    """

    def below(level: Tensor) -> Tensor:
        """How often each score is at or below the level while it rises step by step."""
        return torch.minimum(((level - score) / step).floor().add(1).clamp_min(0), left + 1.0).long()

    low = score.amin(1, keepdim=True) - step
    high = low + step * (left + 1)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        fits = below(middle).sum(1, keepdim=True) <= left
        low, high = torch.where(fits, middle, low), torch.where(fits, high, middle)
    counts = below(low)
    return counts + (ranks(score + counts * step) < left - counts.sum(1, keepdim=True)).long()


def sorted_labels(counts: Tensor, samples: int) -> Tensor:
    """Counts (T, C) as labels (T, N) in rising order."""
    ends = counts.cumsum(1)  # label of place i: the first class whose running count exceeds i
    places = torch.arange(samples, device=counts.device).expand(len(counts), -1)
    return torch.searchsorted(ends, places.contiguous(), right=True)
