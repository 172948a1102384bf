"""A sum agrees with its check value only if nothing was changed."""

import numpy as np
import pytest

from leakgauge.federation.encryption.check_values import CheckValues

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
