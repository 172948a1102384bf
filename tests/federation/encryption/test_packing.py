"""Slots hold the largest sum there can be, and come back as they went in."""

import numpy as np
import pytest

from leakgauge.errors import BadInput, Untrusted
from leakgauge.federation.encryption.packing import Packing

PACKING = Packing(largest=8, fraction_bits=16, pieces=1000, capacity=255)


def test_values_come_back_to_half_a_step():
    values = np.random.default_rng(0).uniform(-8, 8, 100)
    fixed = PACKING.fixed(values)
    plain = list(PACKING.packed(fixed))
    assert len(plain) == PACKING.plaintexts(100) > 1
    assert max(plain) < 2**255
    back = PACKING.unpacked(plain, 100, 1)
    assert np.array_equal(back, fixed)
    assert np.abs(PACKING.floating(back, 1) - values).max() <= 0.5 * 2.0**-16


@pytest.mark.parametrize("value", [8.0, -8.0, 0.0])
def test_the_heaviest_sum_of_the_largest_values_does_not_leave_its_slot(value):
    fixed = PACKING.fixed(np.array([value, -value] * 5))
    summed = [1000 * m for m in PACKING.packed(fixed)]
    assert np.array_equal(PACKING.unpacked(summed, 10, 1000), 1000 * fixed)


def test_what_does_not_fit_its_slots_is_refused():
    with pytest.raises(Untrusted, match="does not fit"):
        PACKING.unpacked([2**300], 2, 1)
    with pytest.raises(Untrusted, match="does not fit"):
        PACKING.unpacked([1, 1, 1], 2, 1)


def test_settings_that_would_overflow_are_refused():
    with pytest.raises(BadInput, match="below 2\\^62"):
        Packing(largest=2.0**20, fraction_bits=40, pieces=65536, capacity=2047)
    with pytest.raises(BadInput, match="longer key"):
        Packing(largest=8, fraction_bits=24, pieces=65536, capacity=40)
