"""Norms with their weight and bias behind them: the same values, whoever calls them."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from leakgauge.engine.batchnorm import WrittenOutNorms

LAYERS = {
    "layer": lambda: nn.LayerNorm((3, 4)),
    "layer-no-bias": lambda: nn.LayerNorm(4, bias=False),
    "batch": lambda: nn.BatchNorm1d(3),
    "batch-eval": lambda: nn.BatchNorm1d(3).eval(),
    "instance": lambda: nn.InstanceNorm1d(3, affine=True),
    "instance-kept": lambda: nn.InstanceNorm1d(3, affine=True, track_running_stats=True).eval(),
    "group": lambda: nn.GroupNorm(1, 3),
    "plain": lambda: nn.LayerNorm(4, elementwise_affine=False),
}


@pytest.mark.parametrize("name", sorted(LAYERS))
def test_a_layer_gives_the_same_values_and_moves_its_statistics_alike(name: str) -> None:
    torch.manual_seed(0)
    layer, same = LAYERS[name]().double(), LAYERS[name]().double()
    with torch.no_grad():
        for p in layer.parameters():
            p += torch.randn_like(p)
    same.load_state_dict(layer.state_dict())
    x = torch.randn(5, 3, 4, dtype=torch.float64)
    with WrittenOutNorms():
        found = same(x)
    torch.testing.assert_close(found, layer(x))
    for name, buffer in layer.named_buffers():
        torch.testing.assert_close(same.get_buffer(name), buffer)


def test_functions_of_torch_give_the_same_values_by_position_and_by_name() -> None:
    x, scale, shift = torch.randn(5, 3, 4), torch.rand(3), torch.rand(3)
    calls = (
        lambda: torch.layer_norm(x, [4], torch.arange(4.0), torch.ones(4), 1e-3, False),
        lambda: torch.layer_norm(x, [4], bias=torch.arange(4.0)),
        lambda: F.layer_norm(x, (4,), torch.arange(4.0)),
        lambda: torch.batch_norm(x, scale, shift, None, None, True, 0.1, 1e-3, False),
        lambda: F.batch_norm(x, shift, scale, scale, shift, False, 0.1, 1e-3),
        lambda: torch.instance_norm(x, scale, shift, None, None, True, 0.1, 1e-3, False),
        lambda: F.instance_norm(x, weight=scale),
    )
    for call in calls:
        expected = call()
        with WrittenOutNorms():
            torch.testing.assert_close(call(), expected)


def test_torch_itself_is_still_wrong_so_that_this_is_still_needed() -> None:
    torch.manual_seed(0)
    layer = nn.LayerNorm(6).double()
    weights = {n: p.detach() for n, p in layer.named_parameters()}
    x, towards = torch.rand(2, 3, 6, dtype=torch.float64), torch.randn(6, dtype=torch.float64)

    def loss(weights: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(layer, weights, (x,)).sigmoid().square().sum()

    def written_out(weights: dict[str, Tensor], x: Tensor) -> Tensor:
        with WrittenOutNorms():
            return loss(weights, x)

    def slope(loss: object, alone: bool) -> Tensor:
        z = x.clone().requires_grad_()
        each = grad(loss)  # type: ignore[arg-type]
        rows = [each(weights, row)["weight"] for row in z] if alone else vmap(each, (None, 0))(weights, z)["weight"]
        total = sum((towards * row).sum() for row in rows)
        (found,) = torch.autograd.grad(total, z)
        return found

    expected = slope(loss, alone=True)
    torch.testing.assert_close(slope(written_out, alone=False), expected)
    assert float((slope(loss, alone=False) - expected).norm()) > 1e-3 * float(expected.norm())
