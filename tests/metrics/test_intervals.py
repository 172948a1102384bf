import numpy as np
import pytest
import torch
from scipy import stats

from leakgauge.errors import BadInput
from leakgauge.metrics.intervals import at_least, at_most, bootstrap_mean, clopper_pearson, mean_of_shares, needed, rate
from leakgauge.types import Interval


def test_bootstrap_agrees_with_scipy():
    values = torch.randn(40, generator=torch.Generator().manual_seed(0))
    ours = bootstrap_mean(values, resamples=5000)
    theirs = stats.bootstrap((values.numpy(),), lambda x, axis: x.mean(axis), method="percentile")
    assert ours.value == pytest.approx(values.mean().item(), abs=1e-6)
    assert ours.low == pytest.approx(theirs.confidence_interval.low, abs=0.03)
    assert ours.high == pytest.approx(theirs.confidence_interval.high, abs=0.03)


def test_bootstrap_repeats():
    values = torch.rand(10)
    assert bootstrap_mean(values) == bootstrap_mean(values)


def test_one_trial_has_no_interval_and_none_has_no_value():
    assert bootstrap_mean(torch.tensor([0.5])) == Interval(0.5, None, None)
    assert bootstrap_mean(torch.tensor([[0.25, 0.75]])) == Interval(0.5, None, None)
    assert bootstrap_mean(torch.zeros(0)) == Interval(None, None, None)


def test_records_of_one_trial_are_not_counted_as_independent():
    """Eight trials of fifty equal records know as much as eight trials, not as four hundred."""
    trials = torch.rand(8, generator=torch.Generator().manual_seed(0))
    eight, many = bootstrap_mean(trials), bootstrap_mean(trials[:, None].expand(8, 50))
    assert (many.low, many.high) == pytest.approx((eight.low, eight.high))


def test_a_value_that_is_not_finite_is_refused_rather_than_dropped():
    with pytest.raises(BadInput, match="1 that are not"):
        bootstrap_mean(torch.tensor([1.0, float("nan")]))


@pytest.mark.parametrize(("k", "n"), [(0, 1), (0, 50), (1, 50), (3, 10), (25, 50), (49, 50), (50, 50)])
def test_it_is_scipys_exact_interval(k: int, n: int):
    exact = stats.binomtest(k, n).proportion_ci(method="exact")
    assert clopper_pearson(k, n) == pytest.approx((exact.low, exact.high), abs=1e-6)


def test_none_of_fifty_is_at_most_7_1_percent():
    low, high = clopper_pearson(0, 50)
    assert low == 0
    assert high == pytest.approx(1 - 0.025 ** (1 / 50))
    assert high == pytest.approx(0.071, abs=5e-4)


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
@pytest.mark.parametrize("n", [1, 2, 6, 20, 50, 100])
def test_the_interval_holds_the_true_share_as_often_as_it_says(n: int, confidence: float):
    """Summed exactly over all counts, for every share: no more than the doubt, and half of it on either side."""
    ends = np.array([clopper_pearson(k, n, confidence) for k in range(n + 1)])
    shares = np.concatenate([np.linspace(0, 1, 2001), ends[:, 0] - 1e-9, ends[:, 1] + 1e-9]).clip(0, 1)[:, None]
    chance = stats.binom.pmf(np.arange(n + 1), n, shares)  # (shares, n + 1)
    below, above = ((chance * missed).sum(1).max() for missed in (shares < ends[:, 0], shares > ends[:, 1]))
    assert below <= (1 - confidence) / 2 + 1e-6
    assert above <= (1 - confidence) / 2 + 1e-6


def test_all_of_fifty_mirrors_none_of_fifty():
    assert clopper_pearson(50, 50) == pytest.approx((1 - clopper_pearson(0, 50)[1], 1.0))


def test_nothing_attacked_says_nothing():
    assert clopper_pearson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize(("k", "n"), [(3, 2), (-1, 2)])
def test_impossible_counts_are_refused(k: int, n: int):
    with pytest.raises(BadInput, match="0 <= k <= n"):
        clopper_pearson(k, n)


def test_rate_carries_its_criterion():
    found = rate(3, 10, "ssim>=0.6")
    assert (found.value, found.recovered, found.records, found.criterion) == (0.3, 3, 10, "ssim>=0.6")
    assert (found.low, found.high) == clopper_pearson(3, 10)


@pytest.mark.parametrize(("shares", "k"), [([1.0] * 6, 6), ([0.0] * 6, 0), ([1.0, 0, 1, 1], 3)])
def test_all_or_nothing_in_each_trial_has_the_exact_interval(shares: list[float], k: int):
    """Six of six labels are not [100 %, 100 %]."""
    found = mean_of_shares(torch.tensor(shares))
    assert (found.value, found.low, found.high) == (k / len(shares), *clopper_pearson(k, len(shares)))


def test_shares_that_are_all_alike_are_not_told_without_doubt():
    found = mean_of_shares(torch.full((6,), 0.75))
    assert found == Interval(0.75, clopper_pearson(4, 6)[0], clopper_pearson(5, 6)[1])


def test_shares_that_differ_are_resampled_and_one_has_no_interval():
    some = torch.tensor([0.25, 0.75, 1.0, 0.5])
    assert mean_of_shares(some) == bootstrap_mean(some)
    assert mean_of_shares(torch.tensor([1.0])) == Interval(1.0, None, None)


def test_limits_by_hand():
    assert at_most(0, 50) == pytest.approx(1 - 0.025 ** (1 / 50))  # 7.1 %
    assert at_most(50, 50) == 1
    assert at_most(0, 0) == 1
    assert at_least(50, 50) == pytest.approx(0.025 ** (1 / 50))
    assert at_least(0, 50) == 0
    assert at_most(3, 10) == pytest.approx(0.6525, abs=1e-4)
    assert at_least(7, 10) == pytest.approx(1 - 0.6525, abs=1e-4)
    with pytest.raises(BadInput, match="k of n"):
        at_most(3, 2)


@pytest.mark.parametrize(("share", "records"), [(0.05, 72), (0.01, 368), (0.5, 6)])
def test_how_many_clean_records_show_a_share(share, records):
    assert needed(share) == records
    assert at_most(0, records) <= share < at_most(0, records - 1)
