from itertools import permutations

import pytest
import torch
from scipy import stats

from leakgauge.errors import BadInput
from leakgauge.metrics.mse import mse
from leakgauge.metrics.wasserstein import wasserstein


def test_equals_scipy_for_p_1():
    a, b = torch.randn(2, 50, dtype=torch.float64)
    assert wasserstein(a, b).item() == pytest.approx(stats.wasserstein_distance(a.numpy(), b.numpy()))


def test_equals_the_best_transport_for_p_2():
    """Brute force over all ways to join four values."""
    a, b = torch.randn(2, 4, dtype=torch.float64)
    best = min((a - b[list(order)]).square().mean().sqrt().item() for order in permutations(range(4)))
    assert wasserstein(a, b, p=2).item() == pytest.approx(best)


def test_order_does_not_matter_unless_as_released():
    a = torch.rand(3, 20)
    shuffled = a[:, torch.randperm(20, generator=torch.Generator().manual_seed(0))]
    assert wasserstein(a, shuffled).tolist() == [0.0] * 3
    assert (wasserstein(a, shuffled, as_released=True) > 0).all()


def test_as_released_is_the_mse_in_disguise():
    a, b = torch.rand(2, 5, 1, 1, 20)
    released = wasserstein(a.flatten(1), b.flatten(1), as_released=True)
    assert torch.allclose(released.square() / 20, mse(a, b))


def test_a_shift_moves_it_by_the_shift():
    a = torch.rand(20)
    for p in (1.0, 2.0, 3.0):
        assert wasserstein(a, a + 0.5, p=p).item() == pytest.approx(0.5)


def test_bad_arguments_are_refused():
    with pytest.raises(BadInput, match="p must be at least 1"):
        wasserstein(torch.rand(3), torch.rand(3), p=0.5)
    with pytest.raises(BadInput, match="flatten both alike"):
        wasserstein(torch.rand(3), torch.rand(4))
