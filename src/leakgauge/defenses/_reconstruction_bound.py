"""From an accounted mechanism to a bound on reconstruction: how much more often than by guessing can anyone succeed?

Success is whatever the reader calls it, and `kappa` has to be said with it: how often would a guess from the prior
alone succeed? A release that is mu-GDP lets nobody succeed more often than gamma = Phi(Phi^-1(kappa) + mu)
(Dong, Roth, Su 2022). One step of the Gaussian mechanism has mu = 1 / sigma, and T of them mu = sqrt(T) / sigma,
without subsampling.

(epsilon, delta) alone says less than mu: it allows gamma up to delta + e^epsilon kappa. A curve of such pairs, as an
accountant gives for subsampled steps, allows the least of these.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from scipy.special import ndtr, ndtri


def reconstruction_bound(mu: float, kappa: float) -> float:
    """The largest probability of success under mu-GDP, for someone who succeeds with `kappa` without the release."""
    return float(ndtr(ndtri(kappa) + mu))


def reconstruction_bound_of(promises: Iterable[tuple[float, float]], kappa: float) -> float:
    """The same from pairs (epsilon, delta), all of which hold: the sharpest of them decides."""
    return min(_bound(epsilon, delta, kappa) for epsilon, delta in promises)


def mu_of_steps(sigma: float, steps: int = 1) -> float:
    """mu of so many Gaussian steps with this noise multiplier, each on all units (q = 1)."""
    return math.sqrt(steps) / sigma


def _bound(epsilon: float, delta: float, kappa: float) -> float:
    """Success may not grow, nor failure shrink, by more than e^epsilon, give or take delta."""
    grown = delta + math.exp(min(epsilon, 700.0)) * kappa
    left = math.exp(-epsilon) * max(0.0, 1 - delta - kappa)
    return min(1.0, grown, 1 - left)
