"""BatchNorm written out is torch's eval mode: outputs, gradients and second derivatives."""

import copy

import pytest
import torch
from torch import nn

from leakgauge.engine.batchnorm import FixedBatchNorm1d, FixedBatchNorm2d, fix_statistics, use_batch_statistics

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
