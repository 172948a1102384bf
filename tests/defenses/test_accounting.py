"""METHODS D7 and golden test G15: what noise, sampling and steps add up to."""

import builtins
import dataclasses
import math

import pytest
from scipy import stats

from leakgauge.defenses.accounting import ACCOUNTANTS, epsilon_of, rdp, sigma_for
from leakgauge.defenses.dp_sgd import DPSGD
from leakgauge.defenses.fed_cdp import FedSDP
from leakgauge.errors import BadInput, MissingExtra
from leakgauge.types import Guarantee


@pytest.mark.parametrize(
    ("q", "sigma", "steps", "plain"), [(0.01, 6, 10_000, 0.8227), (0.01, 6, 300, 0.143), (0.1, 6, 100, 0.849)]
)
def test_golden_values(q, sigma, steps, plain):
    """G15 gives the plain conversion, which is larger; the recipe of the paper computes it."""
    assert 0.6 * plain < epsilon_of(q, sigma, steps, 1e-5) < 0.85 * plain


def test_the_conversion_by_hand():
    """At one order, and the published case: 7.98 by the plain conversion."""
    assert epsilon_of(0.01, 0.643, 1000, 1e-5) == pytest.approx(7.024, abs=1e-3)
    by_hand = min(a / (2 * 4.0**2) + math.log((a - 1) / a) - math.log(1e-5 * a) / (a - 1) for a in range(2, 257))
    assert epsilon_of(1, 4.0, 1, 1e-5) == pytest.approx(by_hand, rel=1e-12)


@pytest.mark.parametrize("sigma", [0.8, 1.0, 2.0, 5.0, 20.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-8])
def test_it_is_never_below_what_one_gaussian_step_really_is(sigma, delta):
    """Balle and Wang 2018, theorem 8: the exact delta of one step without sampling."""
    epsilon = epsilon_of(1, sigma, 1, delta)
    exact = stats.norm.cdf(0.5 / sigma - epsilon * sigma) - math.exp(epsilon) * stats.norm.cdf(
        -0.5 / sigma - epsilon * sigma
    )
    assert exact <= delta


def test_without_sampling_one_step_is_the_plain_gaussian_mechanism():
    assert rdp(1, 2.0, 7) == pytest.approx(7 / 8)
    assert rdp(1 - 1e-12, 2.0, 7) == pytest.approx(7 / 8, rel=1e-6)
    assert rdp(0, 2.0, 7) == 0


def test_order_two_by_hand():
    """A(2) = (1 - q)^2 + 2 q (1 - q) + q^2 e^(1 / sigma^2)."""
    q, sigma = 0.3, 1.5
    expected = math.log((1 - q) ** 2 + 2 * q * (1 - q) + q**2 * math.exp(1 / sigma**2))
    assert rdp(q, sigma, 2) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("q", "sigma"), [(0.01, 6.0), (0.1, 1.0), (0.5, 0.8), (1.0, 3.0)])
def test_each_order_agrees_with_opacus(q, sigma):
    analysis = pytest.importorskip("opacus.accountants.analysis.rdp")
    orders = [2, 3, 8, 29, 64, 200]
    theirs = analysis.compute_rdp(q=q, noise_multiplier=sigma, steps=1, orders=orders)
    assert [rdp(q, sigma, a) for a in orders] == pytest.approx(list(theirs), rel=1e-6, abs=1e-12)


@pytest.mark.parametrize(
    ("q", "sigma", "rounds"),
    [(0.01, 1.0, 1000), (0.1, 6.0, 100), (1.0, 4.0, 10), (0.01, 0.643, 1000), (0.02, 1.1, 3000)],
)
def test_sharper_accountants_promise_more_and_never_much_less(q, sigma, rounds):
    pytest.importorskip("opacus")
    promised = DPSGD(sigma=sigma, q=q, rounds=rounds)
    own, theirs, prv = (dataclasses.replace(promised, accountant=a).guarantee().epsilon for a in ACCOUNTANTS)
    assert prv < theirs <= own + 1e-9
    assert own < min(1.01 * theirs, 1.2 * prv)


@pytest.mark.parametrize(("q", "sigma", "rounds"), [(0.01, 6.0, 300), (0.01, 30.0, 10), (1.0, 100.0, 1)])
def test_where_opacus_has_too_few_orders_it_is_still_not_below_prv(q, sigma, rounds):
    """Opacus stops at order 63, and its PRV adds its own error of 0.01 on top."""
    pytest.importorskip("opacus")
    promised = DPSGD(sigma=sigma, q=q, rounds=rounds)
    own, theirs, prv = (dataclasses.replace(promised, accountant=a).guarantee().epsilon for a in ACCOUNTANTS)
    assert prv - 0.01 <= own < theirs


def test_more_noise_fewer_steps_and_rarer_draws_promise_more():
    base = epsilon_of(0.05, 1.0, 100, 1e-5)
    assert epsilon_of(0.05, 2.0, 100, 1e-5) < base
    assert epsilon_of(0.05, 1.0, 50, 1e-5) < base
    assert epsilon_of(0.02, 1.0, 100, 1e-5) < base
    assert epsilon_of(0.05, 1.0, 100, 1e-7) > base


@pytest.mark.parametrize("epsilon", [0.5, 1, 8, 50])
def test_the_noise_found_for_an_epsilon_keeps_it_and_little_less_noise_would_not(epsilon):
    sigma = sigma_for(epsilon, 1e-5, 0.01, 1000)
    assert epsilon_of(0.01, sigma, 1000, 1e-5) <= epsilon
    assert epsilon_of(0.01, 0.998 * sigma, 1000, 1e-5) > epsilon


def test_an_epsilon_below_what_the_orders_reach_is_refused():
    with pytest.raises(BadInput, match=r"epsilon must be above 0\.0035"):
        sigma_for(0.003, 1e-5, 0.01, 10)


@pytest.mark.parametrize("missing", [{"sigma": 0.0}, {"q": 0.0}, {"rounds": 0}])
def test_without_noise_or_sampling_or_steps_nothing_is_promised(missing):
    stated = {"sigma": 6.0, "q": 0.01, "rounds": 10_000, "delta": 1e-5}
    assert FedSDP(**stated).guarantee() == Guarantee(pytest.approx(0.6592, abs=1e-4), 1e-5, "client")
    assert FedSDP(**stated | missing).guarantee() is None


@pytest.mark.parametrize("accountant", ["opacus-rdp", "prv"])
def test_a_missing_opacus_is_named_in_one_line(monkeypatch, accountant):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("opacus"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r"pip install 'leakgauge\[privacy\]'") as error:
        DPSGD(q=0.1, rounds=10, accountant=accountant).guarantee()
    assert "\n" not in str(error.value)
    assert DPSGD(q=0.1, rounds=10).guarantee() is not None  # our own needs nothing
