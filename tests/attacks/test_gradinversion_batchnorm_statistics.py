"""BatchNorm statistics: what the client's layers saw, differentiable, each trial for itself."""

import pytest
import torch
from torch import nn

from leakgauge.attacks.gradinversion import batch_statistics, running_statistics, statistics_gap
from leakgauge.client.observe import batchnorm_statistics
from leakgauge.engine.gradients import working_model


def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(1, 3, 3),
            nn.BatchNorm2d(3),
            nn.ReLU(),
            nn.Conv2d(3, 4, 3),
            nn.BatchNorm2d(4),
            nn.Flatten(),
            nn.Linear(64, 5),
            nn.BatchNorm1d(5),
        ).eval()


def pictures():
    return torch.rand(3, 4, 1, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_the_gap_is_zero_at_the_true_batch(mode):
    """Whether the client's layers use running or batch statistics: METHODS A12's check."""
    net, inputs = network(), pictures()
    told = batchnorm_statistics(net, inputs, mode)
    found = batch_statistics(working_model(net, mode), inputs, together=mode == "eval")
    assert found.keys() == told.keys() == {"1", "4", "7"}
    assert statistics_gap(found, told).max() < 1e-5
    assert statistics_gap(batch_statistics(working_model(net, mode), 1 - inputs, mode == "eval"), told).min() > 1e-2


def test_one_pass_for_all_trials_equals_one_pass_each():
    net, inputs = working_model(network(), "eval"), pictures()
    together, alone = batch_statistics(net, inputs, together=True), batch_statistics(net, inputs, together=False)
    for name in together:
        for one, other in zip(together[name], alone[name], strict=True):
            torch.testing.assert_close(one, other)


def test_the_gap_can_be_differentiated_also_where_it_is_zero():
    net, inputs = working_model(network(), "eval"), pictures().requires_grad_()
    found = batch_statistics(net, inputs, together=True)
    here = {name: (m.detach(), v.detach()) for name, (m, v) in found.items()}
    (slope,) = torch.autograd.grad(statistics_gap(found, here).sum(), inputs, retain_graph=True)
    assert torch.isfinite(slope).all()
    there = {name: (m + 1, v + 1) for name, (m, v) in here.items()}
    (slope,) = torch.autograd.grad(statistics_gap(found, there).sum(), inputs)
    assert slope.abs().sum() > 0


def test_the_gap_by_hand():
    found = {"a": (torch.tensor([[3.0, 4.0]]), torch.tensor([[4.0, 4.0]]))}
    wanted = {"a": (torch.zeros(2), torch.tensor([4.0, 0.0]))}
    assert statistics_gap(found, wanted).tolist() == [5 / 2 + 4 / 4]
    apart = {"a": found["a"], "b": (torch.zeros(1, 3), torch.ones(1, 3))}
    assert statistics_gap(apart, wanted | {"b": (torch.zeros(3), torch.ones(3))}).tolist() == [(5 / 2 + 4 / 4) / 2]


def test_the_gap_does_not_see_the_scale_of_a_layer():
    found = {"a": (torch.tensor([[3.0, 4.0]]), torch.tensor([[4.0, 4.0]]))}
    wanted = {"a": (torch.zeros(2), torch.tensor([4.0, 1.0]))}
    large = [{"a": (10 * s["a"][0], 100 * s["a"][1])} for s in (found, wanted)]
    torch.testing.assert_close(statistics_gap(*large), statistics_gap(found, wanted))


def test_averages_count_only_where_a_batch_was_seen():
    net = network()
    assert running_statistics(net) == {}
    net[1].train()(torch.rand(2, 3, 4, 4))
    assert list(running_statistics(net)) == ["1"]


def test_no_hook_is_left_behind():
    net = working_model(network(), "eval")
    batch_statistics(net, pictures(), together=True)
    assert not any(m._forward_pre_hooks for m in net.modules())
