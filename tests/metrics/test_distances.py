from itertools import permutations

import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.nn import functional as F

from leakgauge.errors import BadInput
from leakgauge.metrics.distances import gradient_similarity, wasserstein
from leakgauge.metrics.psnr import mse


def _update(seed: int, trials: int = 3) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = {"weight": (4, 5), "bias": (4,), "scale": ()}
    return {name: torch.randn(trials, *shape, generator=generator) for name, shape in shapes.items()}


def _flat(update: dict[str, Tensor]) -> Tensor:
    return torch.cat([t.reshape(len(t), -1) for t in update.values()], dim=1)


def test_equals_torch_on_the_concatenated_vector():
    a, b = _update(0), _update(1)
    expected = F.cosine_similarity(_flat(a), _flat(b), dim=1)
    assert torch.allclose(gradient_similarity(a, b).float(), expected, atol=1e-6)


def test_per_tensor_equals_the_mean_of_single_cosines():
    a, b = _update(0), _update(1)
    each = [F.cosine_similarity(a[n].reshape(3, -1), b[n].reshape(3, -1), dim=1) for n in a]
    expected = torch.stack(each).mean(0)
    assert torch.allclose(gradient_similarity(a, b, per_tensor=True).float(), expected, atol=1e-6)


@pytest.mark.parametrize("per_tensor", [False, True])
def test_scale_does_not_matter_and_sign_does(per_tensor: bool):
    a = _update(0)
    for factor, expected in ((7.0, 1.0), (-0.1, -1.0)):
        other = {name: factor * t for name, t in a.items()}
        found = gradient_similarity(a, other, per_tensor=per_tensor)
        assert found.tolist() == pytest.approx([expected] * 3)


@pytest.mark.parametrize("per_tensor", [False, True])
def test_a_zero_gradient_is_like_nothing(per_tensor: bool):
    a = _update(0)
    zero = {name: torch.zeros_like(t) for name, t in a.items()}
    assert gradient_similarity(a, zero, per_tensor=per_tensor).tolist() == [0.0] * 3


def test_order_of_names_does_not_matter():
    a, b = _update(0), _update(1)
    assert torch.equal(gradient_similarity(a, b), gradient_similarity(a, dict(reversed(b.items()))))


def test_other_parameters_are_refused_by_name():
    with pytest.raises(BadInput, match="only one with bias"):
        gradient_similarity(_update(0), {n: t for n, t in _update(1).items() if n != "bias"})
    with pytest.raises(BadInput, match="got none"):
        gradient_similarity({}, {})


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
