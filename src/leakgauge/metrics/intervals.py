"""How sure a mean, a share or a ranking is, and what a mean hides: intervals, and the exposed end of many records.

Nothing is dropped here. A value that is not finite is refused by the mean and counts as a failure in a rate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from scipy.special import betaincinv, ndtri
from torch import Tensor

from leakgauge.errors import BadInput
from leakgauge.metrics.criterion import gain
from leakgauge.types import Interval, Rate, Tail

TOP = (1, 3, 5)
_ONE_IN = 20


def bootstrap_mean(values: Tensor, *, confidence: float = 0.95, resamples: int = 2000, seed: int = 0) -> Interval:
    """The mean of (T,) or (T, N) values with its percentile bootstrap interval.

    Whole trials are resampled: the N records of one trial stand and fall with one attack, so counting them as
    independent would make the interval too narrow. One trial has a value but no interval; none has neither.
    """
    if values.numel() == 0:
        return Interval(None, None, None)
    table = values.detach().double().cpu().reshape(len(values), -1).numpy()  # (T, N)
    if not np.isfinite(table).all():
        got, do = f"{int((~np.isfinite(table)).sum())} that are not", "score failed trials instead of leaving them out"
        raise BadInput("values of a mean", allowed="finite", got=got, do=do)
    trials = table.mean(1)  # (T,)
    if len(trials) == 1:
        return Interval(float(trials[0]), None, None)
    picks = np.random.default_rng(seed).integers(len(trials), size=(resamples, len(trials)))
    tail = 50 * (1 - confidence)
    low, high = np.percentile(trials[picks].mean(1), [tail, 100 - tail])
    return Interval(float(trials.mean()), float(low), float(high))


def mean_of_shares(values: Tensor, *, confidence: float = 0.95) -> Interval:
    """The mean of one share per trial, (T,) in [0, 1], such as the labels read of each update.

    Where every trial is all or nothing, or all are alike, resampling knows no spread and would say [1, 1] of six of
    six. Trials are then counted as a whole: the exact binomial interval of so many, which a share between 0 and 1
    spreads less than.
    """
    found = bootstrap_mean(values, confidence=confidence)
    shares = values.detach().double().cpu()
    all_or_nothing = (shares == 0) | (shares == 1)
    if len(shares) < 2 or not (bool(all_or_nothing.all()) or bool((shares == shares[0]).all())):
        return found
    total = float(shares.sum())
    low = clopper_pearson(math.floor(total + 1e-9), len(shares), confidence)[0]
    return Interval(found.value, low, clopper_pearson(math.ceil(total - 1e-9), len(shares), confidence)[1])


def clopper_pearson(k: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """The exact two-sided binomial interval for k of n; it holds the true share at least so often, whatever that is.

    Two-sided at the ends as well: 0 of 50 is at most 0.0711 at 95 %, which is 1 - 0.025^(1/50). One side at the ends
    and two sides elsewhere would hold less often than promised. None of 0 says nothing.
    """
    if not 0 <= k <= n:
        raise BadInput("k of n", allowed="with 0 <= k <= n", got=f"{k} of {n}", do="count again")
    if n == 0:
        return 0.0, 1.0
    doubt = (1 - confidence) / 2
    low = float(betaincinv(k, n - k + 1, doubt)) if k > 0 else 0.0
    high = float(betaincinv(k + 1, n - k, 1 - doubt)) if k < n else 1.0
    return low, high


def at_most(k: int, n: int, confidence: float = 0.95) -> float:
    """The upper end of `clopper_pearson`: 0 of 50 is at most 0.0711 at 95 %."""
    return clopper_pearson(k, n, confidence)[1]


def at_least(k: int, n: int, confidence: float = 0.95) -> float:
    """The lower end of `clopper_pearson`: 50 of 50 is at least 0.9289 at 95 %."""
    return clopper_pearson(k, n, confidence)[0]


def needed(share: float, confidence: float = 0.95) -> int:
    """How many records, none of them recovered, show that the share is no larger than this: see `at_most`."""
    return math.ceil(math.log((1 - confidence) / 2) / math.log1p(-share))


def rate(k: int, n: int, criterion: str) -> Rate:
    """k recovered of n attacked records as a `Rate`; the interval treats records as independent."""
    low, high = clopper_pearson(k, n)
    return Rate(k / n if n else 0.0, low, high, k, n, criterion)


def tail_of(metric: str, values: Sequence[float], lost: int = 0) -> Tail:
    """The most exposed record, the score that one in twenty reaches, and the median, of records and `lost` ones.

    A lost record (its trial failed) was not recovered: it counts as less exposed than all others. Ranks are rounded
    towards the exposed end, so with fewer than twenty records one in twenty is the worst.
    """
    ordered = sorted(values, key=lambda value: -gain(metric, value))
    records = len(ordered) + lost

    def place(share: float) -> float | None:
        rank = max(1, math.ceil(share * records))
        return ordered[rank - 1] if rank <= len(ordered) else None

    worst = ordered[0] if ordered else None
    return Tail(metric, worst, place(1 / _ONE_IN), place(0.5), records)


def area_under_curve(scores: Tensor, positive: Tensor, confidence: float = 0.95) -> Interval:
    """The chance that a positive scores above a negative, ties counting half: (T,) scores and (T,) bool.

    A half is guessing. The interval is DeLong et al.'s (1988). It has no width where the groups do not overlap at all;
    then it is the exact one for that many of that many, counted in the smaller group.
    """
    high, low = scores[positive].double(), scores[~positive].double()
    if not len(high) or not len(low):
        got = f"{len(high)} with and {len(low)} without"
        raise BadInput("scores of a ranking", allowed="from both groups", got=got, do="use two trials or more")
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


def among_the_first(scores: Tensor, labels: Tensor, k: int) -> Tensor:
    """(R,) bool: is the true label among the k highest of scores (R, C)? Ties count against it, NaN is a miss."""
    own = scores.gather(1, labels[:, None])  # (R, 1)
    before = (scores >= own).sum(1)  # the label itself is one of them
    return (before <= k) & torch.isfinite(own[:, 0])


def hit_rates(scores: Tensor, labels: Tensor, failed: Tensor, top: Sequence[int] = TOP) -> Mapping[str, Rate]:
    """Does a classifier of people still know who is on a recovered picture (METHODS K9)? `top_1`, `top_3` ...

    All R records count: to leave out those that `failed` (R,) would make every attack look good.
    """
    return {
        f"top_{k}": rate(int((among_the_first(scores, labels, k) & ~failed).sum()), len(labels), f"top-{k}")
        for k in top
    }


def chance(classes: int, top: Sequence[int] = TOP) -> Mapping[str, float]:
    """What guessing among so many people gives."""
    return {f"top_{k}": min(1.0, k / classes) for k in top}
