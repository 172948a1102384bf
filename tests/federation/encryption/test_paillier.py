"""Paillier: its keys, its algebra on one number, and real keys in time."""

import sys
import time

import numpy as np
import pytest

from leakgauge.errors import BadInput, MissingExtra
from leakgauge.federation.encryption.paillier import Paillier
from leakgauge.federation.encryption.whole_weights import whole_weights

DEMO = Paillier(bits=128, insecure_demo=True)


@pytest.mark.parametrize("bits", [128, 1024, 2047, 4096])
def test_other_keys_than_those_that_protect_are_refused(bits):
    with pytest.raises(BadInput, match="2048 or 3072"):
        Paillier(bits=bits)


def test_one_number_under_the_definition():
    """c = (1 + n)^m r^n mod n^2, and a product of ciphertexts holds the sum."""
    keys = DEMO.keys()
    n, square = int(keys.n), int(keys.n) ** 2
    assert n.bit_length() == 128
    for m in (0, 1, n - 1, 12345):
        c = int(keys._encrypted(m))
        residue = c * pow(pow(1 + n, m, square), -1, square) % square
        # An n-th residue has an order that divides (p - 1)(q - 1).
        assert pow(residue, int((keys.p - 1) * (keys.q - 1)), square) == 1
        assert keys._decrypted(keys._encrypted(m)) == m
    assert keys._decrypted(keys._encrypted(20) * keys._encrypted(22) % square) == 42
    assert keys._decrypted(pow(int(keys._encrypted(7)), 6, square)) == 42


def test_even_the_smallest_key_has_room_for_values_and_check():
    keys = DEMO.keys()
    rows = np.random.default_rng(0).uniform(-64, 64, (3, 9))
    whole = whole_weights([0.2, 0.5, 0.3], DEMO.pieces)
    opened = keys.open(keys.adder().weighted_sum([keys.seal(r, i, "r") for i, r in enumerate(rows)], whole))
    assert np.abs(opened - np.array(whole) @ rows / DEMO.pieces).max() <= DEMO.error_bound()


def test_a_real_key_adds_a_real_update_in_time():
    """A tenth of the 15,826 gradients of the DLG paper's LeNet, two clients; all of them and ten take 50 times that."""
    scheme = Paillier()
    keys = scheme.keys()
    rows = np.random.default_rng(0).normal(size=(2, 1583))
    began = time.process_time()
    opened = keys.open(keys.adder().weighted_sum([keys.seal(r, i, "r") for i, r in enumerate(rows)], [40000, 25536]))
    assert time.process_time() - began < 5
    assert np.abs(opened - (40000 * rows[0] + 25536 * rows[1]) / 65536).max() <= scheme.error_bound()
    assert keys.seal(rows[0], 0, "r").bytes == scheme.bytes_up(1583)
    assert scheme.packing.slots == 42


def test_without_the_package_one_line_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "gmpy2", None)
    with pytest.raises(MissingExtra, match=r"pip install 'leakgauge\[encryption\]'"):
        Paillier().keys()
