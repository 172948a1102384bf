"""What clipped and noised steps add up to: (epsilon, delta) of the subsampled Gaussian mechanism, and what it bounds.

Each step takes every unit with probability q, adds up the clipped contributions (length at most C) and adds
N(0, sigma^2 C^2). Its Renyi divergence at a whole order a is log A(a) / (a - 1) with

    A(a) = sum_k binom(a, k) (1 - q)^(a - k) q^k exp(k (k - 1) / (2 sigma^2))

(Mironov, Talwar, Zhang 2019); steps add up, and epsilon is the least over a of

    steps * RDP(a) + log(1 - 1 / a) - (log delta + log a) / (a - 1)

(Balle et al. 2020, theorem 21; Canonne, Kamath, Steinke 2020, proposition 12). This is an upper bound: fractional
orders, as in Opacus, give a little less, and PRV, which convolves, less again. For an epsilon above about 15 the best
order lies below 2 and this bound becomes loose.

Neighbours differ by one unit that is there or not. The sampling has to be a secret: against someone who sees who takes
part, q is 1.

Reconstruction: success is whatever the reader calls it, and `kappa` says how often a guess from the prior alone
succeeds. A release that is mu-GDP lets nobody succeed more often than Phi(Phi^-1(kappa) + mu) (Dong, Roth, Su 2022).
T steps of the Gaussian mechanism have mu = sqrt(T) / sigma, without subsampling. (epsilon, delta) alone says less: it
allows up to delta + e^epsilon kappa. A curve of such pairs, as for subsampled steps, allows the least of these.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import gammaln, logsumexp, ndtr, ndtri

from leakgauge.client.sums import mean_of_rounds
from leakgauge.defenses._clipping import KnownClipping
from leakgauge.errors import BadInput, MissingExtra
from leakgauge.matching.noise import SUM, Noise
from leakgauge.settings import setting
from leakgauge.types import Guarantee, SharedUpdate

ACCOUNTANTS = ("rdp", "opacus-rdp", "prv")
ORDERS = (*range(2, 257), 320, 384, 448, 512, 640, 768, 1024)
_PRECISION = 1e-3  # of sigma, relative
_PRV_ERROR = 0.01  # of epsilon, absolute
_DELTAS = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 1e-4, 1e-5, 1e-6, 1e-8)  # a large delta serves a kappa that is not small


@dataclass(frozen=True)
class Accounted(KnownClipping):
    """Clips to `norm` and adds noise `sigma` x `norm`; a sampling rate and a number of steps make a promise of it."""

    strength: ClassVar[str] = "norm"
    unit: ClassVar[str]  # to whom the promise is made: "sample" or "client"
    noise_on: ClassVar[str] = SUM  # what the noise is added to

    norm: float = setting(1.0, "C, the largest length that passes; 0 turns the defense off", low=0)
    sigma: float = setting(1.0, "standard deviation of the noise in units of C; 0 adds none", low=0)
    q: float = setting(
        0.0,
        "probability with which a step draws a given sample or client; 0: not said, nothing promised",
        low=0,
        high=1,
    )
    rounds: int = setting(0, "noised steps in the whole training; 0: not said, nothing promised", low=0)
    delta: float = setting(1e-5, "delta of the promise", above=0, high=0.5)
    accountant: str = setting("rdp", "our own bound, or Opacus' RDP or PRV (extra: privacy)", choices=ACCOUNTANTS)

    @property
    def clipped_noise(self) -> Noise | None:
        return Noise(self.sigma * self.norm, self.noise_on, "l2") if self.sigma * self.norm else None

    def combined(self, updates: Sequence[SharedUpdate]) -> SharedUpdate:
        return mean_of_rounds(updates)

    def mu(self, steps: int = 1) -> float | None:
        """mu-GDP of so many noised steps that one unit certainly takes part in; None without clipping or noise."""
        return mu_of_steps(self.sigma, steps) if self.norm and self.sigma else None

    def promises(self) -> list[tuple[float, float]]:
        """(epsilon, delta) at several delta, all of which hold for the training as stated; empty if it is not."""
        made = (dataclasses.replace(self, delta=delta).guarantee() for delta in _DELTAS)
        return [(promise.epsilon, promise.delta) for promise in made if promise is not None]

    def guarantee(self) -> Guarantee | None:
        """The promise to one `unit`; None without clipping, noise, a sampling rate or a number of steps."""
        if not (self.norm and self.sigma and self.q and self.rounds):
            return None
        account = epsilon_of if self.accountant == "rdp" else functools.partial(_by_opacus, self.accountant)
        return Guarantee(account(self.q, self.sigma, self.rounds, self.delta), self.delta, self.unit)


def rdp(q: float, sigma: float, order: int) -> float:
    """Renyi divergence of one step at a whole order from 2 on."""
    if q == 1:
        return order / (2 * sigma**2)
    if q == 0:
        return 0.0
    k = np.arange(order + 1)
    ways = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
    terms = ways + (order - k) * math.log1p(-q) + k * math.log(q) + k * (k - 1) / (2 * sigma**2)
    return max(0.0, float(logsumexp(terms)) / (order - 1))


def epsilon_of(q: float, sigma: float, steps: int, delta: float) -> float:
    """The epsilon of so many steps, by this module's own accountant."""
    return max(0.0, min(steps * rdp(q, sigma, a) + _converted(a, delta) for a in ORDERS))


def _converted(order: int, delta: float) -> float:
    """What (epsilon, delta) adds to a Renyi divergence at this order."""
    return math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)


def sigma_for(epsilon: float, delta: float, q: float, steps: int) -> float:
    """The smallest noise multiplier, to one in a thousand, whose accounted epsilon is not above this one."""
    least = max(0.0, min(_converted(a, delta) for a in ORDERS))
    if epsilon <= least:
        raise BadInput("epsilon", allowed=f"above {least:.3g} for this delta", got=epsilon, do="ask for a larger one")
    low, high = 0.0, 1.0
    while epsilon_of(q, high, steps, delta) > epsilon:
        low, high = high, 2 * high
    while high - low > _PRECISION * high:
        middle = (low + high) / 2
        if epsilon_of(q, middle, steps, delta) > epsilon:
            low = middle
        else:
            high = middle
    return high


def _by_opacus(accountant: str, q: float, sigma: float, steps: int, delta: float) -> float:
    try:
        from opacus.accountants import PRVAccountant, RDPAccountant
    except ImportError as error:
        raise MissingExtra(
            f"accountant={accountant} needs the package opacus; run: pip install 'leakgauge[privacy]', or use rdp"
        ) from error

    one = RDPAccountant() if accountant == "opacus-rdp" else PRVAccountant()
    one.history = [(sigma, q, steps)]
    more = {} if accountant == "opacus-rdp" else {"eps_error": _PRV_ERROR}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns if the best order is the last it tried; the bound still holds
        return float(one.get_epsilon(delta=delta, **more))


def mu_of_steps(sigma: float, steps: int = 1) -> float:
    """mu of so many Gaussian steps with this noise multiplier, each on all units (q = 1)."""
    return math.sqrt(steps) / sigma


def reconstruction_bound(mu: float, kappa: float) -> float:
    """The largest probability of success under mu-GDP, for someone who succeeds with `kappa` without the release."""
    return float(ndtr(ndtri(kappa) + mu))


def reconstruction_bound_of(promises: Iterable[tuple[float, float]], kappa: float) -> float:
    """The same from pairs (epsilon, delta), all of which hold: the sharpest of them decides."""
    return min(_bound(epsilon, delta, kappa) for epsilon, delta in promises)


def _bound(epsilon: float, delta: float, kappa: float) -> float:
    """Success may not grow, nor failure shrink, by more than e^epsilon, give or take delta."""
    grown = delta + math.exp(min(epsilon, 700.0)) * kappa
    left = math.exp(-epsilon) * max(0.0, 1 - delta - kappa)
    return min(1.0, grown, 1 - left)
