"""What made-up samples show of a network: gradients as torch gives them, and where each number of a sample goes."""

import pytest
import torch
from torch import nn

from leakgauge.errors import NotApplicable
from leakgauge.matching.probing import Probing, probing_of

SHAPE = (2, 3, 4)


def probing(classes=5):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(24, 6), nn.Tanh(), nn.Linear(6, classes)).double()
    return Probing(net, {name: tuple(p.shape) for name, p in net.named_parameters()}, SHAPE)


def test_gradients_are_those_of_weighted_sums_of_the_logits():
    tried = probing()
    samples = torch.rand(3, *SHAPE, dtype=torch.float64)
    found = tried.gradients(samples, ("1.weight", "1.weight", "3.bias"), pulls=2)
    assert [set(one) for one in found] == [{"1.weight", "3.bias"}] * 3
    for one, sample in zip(found, samples, strict=True):
        pulls = one["3.bias"]  # the last bias gets back what the logits were pulled by
        for pull, gradient in zip(pulls, one["1.weight"], strict=True):
            torch.testing.assert_close(
                gradient, torch.autograd.grad(tried.net(sample[None]), tried.net[1].weight, pull[None])[0]
            )


def test_more_sums_than_classes_come_from_other_weights_and_leave_the_network_alone():
    tried = probing(classes=2)
    before = [p.clone() for p in tried.net.parameters()]
    (found,) = tried.gradients(torch.rand(1, *SHAPE, dtype=torch.float64), ("1.weight",), pulls=5)
    assert torch.linalg.matrix_rank(found["1.weight"].flatten(1)) == 5
    assert all(torch.equal(p, q) for p, q in zip(before, tried.net.parameters(), strict=True))


def test_the_map_holds_order_scale_shift_padding_and_overlap():
    order = torch.randperm(24, generator=torch.Generator().manual_seed(1))

    def read(samples):
        flat = 2 * samples.flatten(1)[:, order] - 0.5
        return torch.cat((flat, flat[:, :3], torch.ones_like(flat[:, :2])), 1)

    found = probing().input_map(read)
    assert found.index.tolist() == [*order.tolist(), *order[:3].tolist(), -1, -1]
    assert found.share == 1
    sample = torch.rand(7, 24, dtype=torch.float64)
    torch.testing.assert_close(found.values(sample), read(sample.reshape(7, *SHAPE)))
    torch.testing.assert_close(found.sample(found.values(sample)), sample)


@pytest.mark.parametrize("read", [lambda x: x.flatten(1) ** 2, lambda x: x.flatten(1).cumsum(1), lambda _: None])
def test_what_is_no_copy_of_the_numbers_has_no_map(read):
    assert probing().input_map(read) is None


def test_of_a_map_of_a_part_the_share_says_how_much(scene):
    found = probing().input_map(lambda x: x[:, 0].flatten(1))
    assert found.share == 0.5
    assert (found.sample(torch.ones(12, dtype=torch.float64))[12:] == 0).all()


def test_zeros_are_filled_and_the_model_is_left_alone(scene):
    seen = scene("mlp").seen
    with torch.no_grad():
        next(seen.model.parameters()).zero_()
    tried = probing_of(seen)
    assert all(bool(p.any()) for p in tried.net.parameters())
    assert not next(seen.model.parameters()).any()
    assert tried.like.dtype == torch.float64
    assert set(tried.shapes) == set(seen.update.tensors)


def test_a_network_that_does_not_run_on_one_sample_is_refused(scene, monkeypatch):
    seen = scene("mlp").seen

    def fails(*_):
        raise RuntimeError("one is too few")

    monkeypatch.setattr(type(seen.model), "forward", fails)
    with pytest.raises(NotApplicable, match="one is too few"):
        probing_of(seen)
