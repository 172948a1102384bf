"""What clipped and noised steps add up to: (epsilon, delta) of the subsampled Gaussian mechanism.

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
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import numpy as np
from scipy.special import gammaln, logsumexp

from leakgauge.errors import BadInput, MissingExtra
from leakgauge.types import Guarantee

ACCOUNTANTS = ("rdp", "opacus-rdp", "prv")
ORDERS = (*range(2, 257), 320, 384, 448, 512, 640, 768, 1024)
_PRECISION = 1e-3  # of sigma, relative
_PRV_ERROR = 0.01  # of epsilon, absolute


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


def accounted(
    unit: str, *, sigma: float, q: float, rounds: int, delta: float, accountant: str = "rdp"
) -> Guarantee | None:
    """The promise to one `unit`; None without noise, or where the sampling rate or the number of steps is not said."""
    if not (sigma and q and rounds):
        return None
    account = epsilon_of if accountant == "rdp" else _by_opacus(accountant)
    return Guarantee(account(q, sigma, rounds, delta), delta, unit)


def _by_opacus(accountant: str) -> Callable[[float, float, int, float], float]:
    try:
        from opacus.accountants import PRVAccountant, RDPAccountant
    except ImportError as error:
        raise MissingExtra(
            f"accountant={accountant} needs the package opacus; run: pip install 'leakgauge[privacy]', or use rdp"
        ) from error

    def spent(q: float, sigma: float, steps: int, delta: float) -> float:
        one = RDPAccountant() if accountant == "opacus-rdp" else PRVAccountant()
        one.history = [(sigma, q, steps)]
        more = {} if accountant == "opacus-rdp" else {"eps_error": _PRV_ERROR}
        with (
            warnings.catch_warnings()
        ):  # it says when the best order is the last it tried; the bound holds all the same
            warnings.simplefilter("ignore")
            return float(one.get_epsilon(delta=delta, **more))

    return spent
