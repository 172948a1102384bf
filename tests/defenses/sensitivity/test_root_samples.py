"""Root samples: made up, real or distilled, even or biased; the same for everybody."""

import pytest
import torch
from torch import nn

from leakgauge.defenses.sensitivity.slicing import distilled, labels_of, loss_after_step, root_samples
from leakgauge.errors import BadInput

SHAPE = (1, 8, 8)


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.Sigmoid(), nn.Flatten(), nn.Linear(144, 10))


def test_made_up_ones_are_pictures_of_every_label(net):
    inputs, labels = root_samples(net, SHAPE, 20)
    assert inputs.shape == (20, *SHAPE)
    assert inputs.min() >= 0
    assert inputs.max() <= 1
    assert torch.bincount(labels).tolist() == [2] * 10


@pytest.mark.parametrize(("bias", "first"), [(0.1, 10), (0.2, 20), (0.4, 40), (0.6, 60), (1.0, 100)])
def test_a_bias_is_the_share_of_one_label(bias, first):
    counts = torch.bincount(labels_of(100, 10, bias), minlength=10).tolist()
    assert counts[0] == first
    assert max(counts[1:]) - min(counts[1:]) <= 1


def test_real_ones_are_samples_of_the_data_with_the_labels_asked_for(net):
    inputs, labels = root_samples(net, SHAPE, 50, "real", "digits", bias=0.4)
    assert int((labels == 0).sum()) == 20
    again, _ = root_samples(net, SHAPE, 50, "real", "digits", bias=0.4)
    assert torch.equal(inputs, again)


def test_distilled_ones_teach_more_in_one_step_than_those_they_come_from(net):
    real, real_labels = root_samples(net, SHAPE, 100, "real", "digits")
    start, labels = root_samples(net, SHAPE, 20)
    found = distilled(net, start, labels, real, real_labels)
    rate = torch.tensor(0.1)
    before, after = (loss_after_step(net, x, labels, rate, real, real_labels).item() for x in (start, found))
    assert after < before
    assert found.min() >= 0
    assert found.max() <= 1
    assert torch.equal(root_samples(net, SHAPE, 20, "distilled", "digits")[1], labels)


def test_the_slope_of_the_loss_after_a_step_is_that_of_finite_differences(net):
    twice = nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.Tanh(), nn.Linear(5, 10)).double()
    g = torch.Generator().manual_seed(0)
    x, real = (torch.rand(n, *SHAPE, generator=g, dtype=torch.float64) for n in (3, 6))
    y, real_y = torch.tensor([0, 1, 2]), torch.arange(6)
    x.requires_grad_()
    rate = torch.tensor(0.5, dtype=torch.float64)
    (slope,) = torch.autograd.grad(loss_after_step(twice, x, y, rate, real, real_y), x)
    step = 1e-5 * torch.randn(x.shape, generator=g, dtype=torch.float64)
    with torch.no_grad():
        moved = [x.detach() + sign * step for sign in (1, -1)]
    up, down = (loss_after_step(twice, m, y, rate, real, real_y).item() for m in moved)
    assert up - down == pytest.approx(2 * float((slope * step).sum()), rel=1e-5)


def test_samples_of_another_shape_are_refused(net):
    with pytest.raises(BadInput, match=r"samples of shape \(1, 10, 10\)"):
        root_samples(nn.Sequential(nn.Flatten(), nn.Linear(100, 10)), (1, 10, 10), 5, "real", "digits")


def test_more_samples_of_one_label_than_there_are_are_refused(net):
    with pytest.raises(BadInput, match="sensitivity: root must be at most"):
        root_samples(net, SHAPE, 5000, "real", "digits", bias=1.0)
