"""Normalising layers without side effects, and differentiated twice."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from leakgauge.engine.batchnorm import (
    FixedBatchNorm1d,
    FixedBatchNorm2d,
    WrittenOutNorms,
    fix_statistics,
    use_batch_statistics,
)

LAYERS = {
    "2d": (lambda: nn.BatchNorm2d(3), (4, 3, 5, 5)),
    "2d bare": (lambda: nn.BatchNorm2d(3, affine=False), (4, 3, 5, 5)),
    "2d other epsilon": (lambda: nn.BatchNorm2d(3, eps=0.1), (4, 3, 5, 5)),
    "1d": (lambda: nn.BatchNorm1d(3), (4, 3)),
    "1d bare": (lambda: nn.BatchNorm1d(3, affine=False), (4, 3)),
    "1d sequence": (lambda: nn.BatchNorm1d(3), (4, 3, 6)),
}


def lived_in(layer: nn.Module) -> nn.Module:
    g = torch.Generator().manual_seed(0)
    layer.running_mean.copy_(torch.randn(3, generator=g))
    layer.running_var.copy_(0.5 + torch.rand(3, generator=g))
    for parameter in layer.parameters():
        parameter.data = torch.randn(3, generator=g)
    return layer.double().eval()


def pair(name: str) -> tuple[nn.Module, nn.Module, torch.Tensor]:
    make, shape = LAYERS[name]
    theirs = nn.Sequential(lived_in(make()))
    ours = copy.deepcopy(theirs)
    fix_statistics(ours)
    return theirs, ours, torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("name", LAYERS)
def test_outputs_gradients_and_second_derivatives_are_torchs_eval_mode(name):
    theirs, ours, data = pair(name)
    found = []
    for model in (theirs, ours):
        x = data.clone().requires_grad_()
        out = model(x)
        wanted = [x, *model.parameters()]
        first = torch.autograd.grad((torch.sin(out) ** 2).sum(), wanted, create_graph=True)
        second = torch.autograd.grad(sum((g**2).sum() for g in first), wanted)
        found.append((out, *first, *second))
    assert len(found[0]) == len(found[1])
    for slow, fast in zip(*found, strict=True):
        torch.testing.assert_close(fast, slow, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", LAYERS)
def test_names_and_values_stay_and_so_do_the_statistics_while_it_runs(name):
    theirs, ours, data = pair(name)
    assert [n for n, _ in ours.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    ours.train()(data)  # even in train mode nothing is updated
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    assert all(torch.equal(v, theirs.state_dict()[n]) for n, v in ours.state_dict().items())


def test_every_layer_inside_is_found_and_others_are_left_alone():
    class Own(nn.BatchNorm2d):
        """Somebody's own version, of which nothing is known."""

    model = nn.Sequential(nn.Conv2d(3, 3, 1), nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.BatchNorm1d(3)), Own(3))
    fix_statistics(model)
    assert [type(m) for m in model[1]] == [FixedBatchNorm2d, nn.Flatten, FixedBatchNorm1d]
    assert type(model[2]) is Own


def test_a_layer_without_running_statistics_stays_as_it_is():
    layer = nn.Sequential(nn.BatchNorm2d(3, track_running_stats=False))
    fix_statistics(layer)
    assert type(layer[0]) is nn.BatchNorm2d


def test_a_fixed_model_can_be_copied_and_fixed_again():
    _, ours, data = pair("2d")
    again = copy.deepcopy(ours)
    fix_statistics(again)
    assert torch.equal(again(data), ours(data))


def test_batch_statistics_are_those_of_the_batch_at_hand_though_the_model_is_in_eval_mode():
    model = nn.Sequential(lived_in(nn.BatchNorm2d(3))).eval()
    use_batch_statistics(model)
    x = 5 + 3 * torch.randn(6, 3, 4, 4, dtype=torch.float64)
    with torch.no_grad():
        model[0].weight.fill_(1)
        model[0].bias.fill_(0)
    out = model(x)
    torch.testing.assert_close(out.mean((0, 2, 3)), torch.zeros(3, dtype=torch.float64), rtol=0, atol=1e-10)
    torch.testing.assert_close(out.var((0, 2, 3), unbiased=False), torch.ones(3).double(), rtol=1e-4, atol=0)


LAYERS_WRITTEN_OUT_NORMS = {
    "layer": lambda: nn.LayerNorm((3, 4)),
    "layer-no-bias": lambda: nn.LayerNorm(4, bias=False),
    "batch": lambda: nn.BatchNorm1d(3),
    "batch-eval": lambda: nn.BatchNorm1d(3).eval(),
    "instance": lambda: nn.InstanceNorm1d(3, affine=True),
    "instance-kept": lambda: nn.InstanceNorm1d(3, affine=True, track_running_stats=True).eval(),
    "group": lambda: nn.GroupNorm(1, 3),
    "plain": lambda: nn.LayerNorm(4, elementwise_affine=False),
}


@pytest.mark.parametrize("name", sorted(LAYERS_WRITTEN_OUT_NORMS))
def test_a_layer_gives_the_same_values_and_moves_its_statistics_alike(name: str) -> None:
    torch.manual_seed(0)
    layer, same = LAYERS_WRITTEN_OUT_NORMS[name]().double(), LAYERS_WRITTEN_OUT_NORMS[name]().double()
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
