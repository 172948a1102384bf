"""CKKS: fast, and approximate as stated."""

import dataclasses
import sys
import time

import numpy as np
import pytest

from leakgauge.errors import BadInput, MissingExtra, Untrusted
from leakgauge.federation.encryption.ckks import Ckks
from leakgauge.federation.encryption.scheme import whole_weights


def test_all_gradients_of_a_lenet_from_ten_clients_within_a_second():
    scheme = Ckks()
    keys = scheme.keys()
    rows = np.random.default_rng(0).uniform(-64, 64, (10, 15826))
    whole = whole_weights([1.0] * 10, scheme.pieces)
    began = time.process_time()
    opened = keys.open(keys.adder().weighted_sum([keys.seal(r, i, "round 1") for i, r in enumerate(rows)], whole))
    assert time.process_time() - began < 1
    assert np.abs(opened - np.array(whole) @ rows / scheme.pieces).max() <= scheme.error_bound()


def test_a_small_change_of_one_number_is_below_the_check():
    """What the approximate check does not give: see the module's text."""
    scheme = Ckks()
    keys = scheme.keys()
    assert np.abs(keys._along).max() * 1e-5 < 1e-4  # a slot moved by 1e-5 moves the check value by less than it may


def test_values_that_would_leave_the_modulus_are_refused():
    with pytest.raises(BadInput, match="at most 8192"):
        Ckks(largest=1e6)


def test_without_the_package_one_line_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "tenseal", None)
    with pytest.raises(MissingExtra, match=r"pip install 'leakgauge\[encryption\]'"):
        Ckks().keys()


@pytest.mark.parametrize("place", [-8, -4, -1])
def test_a_changed_scale_is_found_out_in_a_sum_and_changes_nothing_alone(place):
    """The last eight bytes; they are not used when a message is opened by itself."""
    keys, rows = Ckks().keys(), np.random.default_rng(0).normal(size=(2, 20))
    first, second = (keys.seal(row, client, "round 1") for client, row in enumerate(rows))
    changed = bytearray(first.parts[0])
    changed[place] ^= 4
    changed_message = dataclasses.replace(first, parts=(bytes(changed),))
    assert np.abs(keys.open(changed_message) - rows[0]).max() < Ckks().error_bound()
    with pytest.raises(Untrusted):
        keys.open(keys.adder().weighted_sum([changed_message, second], [3, 4]))
