"""Whole weights add up, and each stays within one of its exact share."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leakgauge.errors import BadInput
from leakgauge.federation.encryption.whole_weights import whole_weights


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=40).filter(lambda s: sum(s) > 1e-9), st.integers(1, 2**20))
def test_they_sum_exactly_and_are_less_than_one_away(shares, pieces):
    whole = whole_weights(shares, pieces)
    assert sum(whole) == pieces
    assert min(whole) >= 0
    assert np.abs(np.array(whole) - np.array(shares) / np.sum(shares) * pieces).max() < 1 + 1e-6


def test_three_equal_clients_lose_nothing():
    """Rounding each by itself makes 99 of 100: the step would shrink by one percent."""
    assert whole_weights([1, 1, 1], 100) == [34, 33, 33]


@pytest.mark.parametrize("shares", [[], [0.0, 0.0], [1.0, -1.0], [float("nan"), 1.0], [float("inf")]])
def test_what_is_no_weighting_is_refused(shares):
    with pytest.raises(BadInput, match="non-negative"):
        whole_weights(shares, 10)
