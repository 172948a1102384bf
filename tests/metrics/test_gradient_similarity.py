import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from leakgauge.errors import BadInput
from leakgauge.metrics.gradient_similarity import gradient_similarity


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
