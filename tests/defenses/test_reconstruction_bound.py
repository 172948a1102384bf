"""FIELD card F3: from mu, or from (epsilon, delta), to how often anyone can succeed."""

import math

import pytest
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from leakgauge.defenses.accounting import mu_of_steps, reconstruction_bound, reconstruction_bound_of

CARD = [(0.5, 2.0, 0.034), (1, 4.4, 0.092), (2, 10.0, 0.37), (4, 24.0, 0.95)]  # mu, epsilon at 1e-5, gamma at 1 %


def delta_of(mu: float, epsilon: float) -> float:
    """The delta with which mu-GDP is (epsilon, delta)-DP."""
    return float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu)))


def epsilon_of(mu: float, delta: float) -> float:
    """The epsilon with which mu-GDP is (epsilon, delta)-DP."""
    return float(brentq(lambda epsilon: delta_of(mu, epsilon) - delta, 0.0, 100.0))


@pytest.mark.parametrize(("mu", "epsilon", "gamma"), CARD)
def test_the_card(mu, epsilon, gamma):
    assert reconstruction_bound(mu, 0.01) == pytest.approx(gamma, abs=5e-3)
    assert epsilon_of(mu, 1e-5) == pytest.approx(epsilon, rel=0.02)


def test_nothing_released_is_nothing_gained():
    assert reconstruction_bound(0, 0.01) == pytest.approx(0.01)
    assert reconstruction_bound_of([(0.0, 0.0)], 0.01) == pytest.approx(0.01)


def test_a_certain_guess_stays_certain_and_an_impossible_one_impossible():
    assert reconstruction_bound(1, 0) == 0
    assert reconstruction_bound(1, 1) == 1


def test_large_epsilons_do_not_overflow():
    assert reconstruction_bound_of([(1e4, 1e-5)], 0.01) == 1


@pytest.mark.parametrize("mu", [0.5, 1, 2])
def test_pairs_say_less_than_mu_and_a_curve_more_than_one_pair(mu):
    curve = [(epsilon_of(mu, 10.0**-k), 10.0**-k) for k in range(1, 8)]
    exact, many, one = reconstruction_bound(mu, 0.01), reconstruction_bound_of(curve, 0.01), None
    one = reconstruction_bound_of(curve[4:5], 0.01)
    assert exact <= many <= one


def test_one_pair_by_hand():
    assert reconstruction_bound_of([(1.0, 1e-3)], 0.01) == pytest.approx(1e-3 + math.e * 0.01)
    assert reconstruction_bound_of([(1.0, 0.0)], 0.9) == pytest.approx(1 - 0.1 / math.e)


def test_steps_add_up_as_their_root():
    assert mu_of_steps(2.0) == 0.5
    assert mu_of_steps(2.0, 16) == 2.0
