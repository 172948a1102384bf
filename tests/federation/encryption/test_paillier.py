"""Paillier: its keys, its algebra on one number, and real keys in time."""

import sys
import time

import numpy as np
import pytest

from leakgauge.errors import BadInput, MissingExtra, Untrusted
from leakgauge.federation.encryption.paillier import CheckValues, Packing, Paillier
from leakgauge.federation.encryption.scheme import whole_weights

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


PACKING = Packing(largest=8, fraction_bits=16, pieces=1000, capacity=255)


def test_values_come_back_to_half_a_step():
    values = np.random.default_rng(0).uniform(-8, 8, 100)
    fixed = PACKING.fixed(values)
    plain = list(PACKING.packed(fixed))
    assert len(plain) == -(-100 // PACKING.slots) > 1
    assert max(plain) < 2**255
    back = PACKING.unpacked(plain, 100, 1)
    assert np.array_equal(back, fixed)
    assert np.abs(back / 2.0**PACKING.fraction_bits - values).max() <= 0.5 * 2.0**-16


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


CHECKS = CheckValues.within(b"secret", 2000)
ROWS = np.random.default_rng(0).integers(-(2**30), 2**30, (3, 50))
WEIGHTS = (5, 0, 2)


@pytest.fixture
def summed() -> tuple[int, np.ndarray, tuple[tuple[int, int], ...]]:
    check = sum(
        w * CHECKS.of(row, client, "round 1") for client, (w, row) in enumerate(zip(WEIGHTS, ROWS, strict=True))
    )
    return check, np.array(WEIGHTS) @ ROWS, tuple(enumerate(WEIGHTS))


def test_an_honest_sum_agrees(summed):
    assert CHECKS.agrees(*summed, "round 1")


def test_a_changed_number_weight_client_or_round_does_not(summed):
    check, total, weights = summed
    other = total.copy()
    other[7] += 1
    assert not CHECKS.agrees(check, other, weights, "round 1")
    assert not CHECKS.agrees(check, total, ((0, 2), (1, 0), (2, 5)), "round 1")
    assert not CHECKS.agrees(check, total, weights[:2], "round 1")
    assert not CHECKS.agrees(check, total, weights, "round 2")
    assert not CheckValues.within(b"another", 2000).agrees(*summed, "round 1")


@pytest.mark.parametrize(("bits", "exponent"), [(2000, 127), (110, 107), (100, 89), (70, 61)])
def test_the_prime_fits(bits, exponent):
    assert CheckValues.within(b"", bits).prime == 2**exponent - 1
