"""How sure a mean or a share is: bootstrap and Clopper-Pearson intervals.

Nothing is dropped here. A value that is not finite is refused by the mean and counts as a failure in a rate.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import betaincinv
from torch import Tensor

from leakgauge.errors import BadInput
from leakgauge.types import Interval, Rate


def bootstrap_mean(values: Tensor, *, confidence: float = 0.95, resamples: int = 2000, seed: int = 0) -> Interval:
    """The mean of (T,) or (T, N) values with its percentile bootstrap interval.

    Whole trials are resampled: the N records of one trial stand and fall with one attack, so counting them as
    independent would make the interval too narrow. One trial has a value but no interval; none has neither.
    """
    if values.numel() == 0:
        return Interval(None, None, None)
    table = values.detach().double().cpu().reshape(len(values), -1).numpy()  # (T, N)
    if not np.isfinite(table).all():
        raise BadInput(
            "values of a mean",
            allowed="finite",
            got=f"{int((~np.isfinite(table)).sum())} that are not",
            do="score failed trials instead of leaving them out",
        )
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
    told = (shares == 0) | (shares == 1)
    if len(shares) < 2 or not (bool(told.all()) or bool((shares == shares[0]).all())):
        return found
    total = float(shares.sum())
    low = clopper_pearson(math.floor(total + 1e-9), len(shares), confidence)[0]
    return Interval(found.value, low, clopper_pearson(math.ceil(total - 1e-9), len(shares), confidence)[1])


def clopper_pearson(k: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """The exact two-sided binomial interval for k of n; it holds the true share at least so often, whatever that is.

    Two-sided at the ends as well: 0 of 50 is at most 0.0711 at 95 %, which is 1 - 0.025^(1/50). Whoever puts all of the
    doubt on one side there, and half of it in between, is right less often than promised. None of 0 says nothing.
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
