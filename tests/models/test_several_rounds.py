"""Several rounds as one network: plain cross-entropy is the sum, and every round has its own gradient."""

import torch
import torch.nn.functional as F

from leakgauge.data import load
from leakgauge.models import load_model
from leakgauge.models._several_rounds import SeveralRounds
from leakgauge.models.locked_norm import locks_in, with_norm


def several(rounds=3):
    locked = with_norm(load_model("lenet-dlg:filters=4", load("digits").spec, 0), "first", length=8).double()
    return SeveralRounds(locked, rounds, drift=0.1)


def batch():
    g = torch.Generator().manual_seed(0)
    return torch.rand(2, 1, 8, 8, generator=g, dtype=torch.float64), torch.tensor([3, 1])


def test_cross_entropy_is_the_sum_over_rounds():
    model, (inputs, labels) = several(), batch()
    outputs = model(inputs)
    assert outputs.shape == (2, 11)
    torch.testing.assert_close(outputs.logsumexp(1), torch.zeros(2, dtype=torch.float64), atol=1e-9, rtol=0)
    wanted = sum(F.cross_entropy(net(inputs), labels) for net in model.rounds)
    torch.testing.assert_close(F.cross_entropy(outputs, labels), wanted)


def test_each_round_has_the_gradient_it_would_have_alone():
    model, (inputs, labels) = several(), batch()
    gradients = torch.autograd.grad(F.cross_entropy(model(inputs), labels), list(model.parameters()))
    alone = [
        g
        for net in model.rounds
        for g in torch.autograd.grad(F.cross_entropy(net(inputs), labels), [*net.parameters()])
    ]
    for together, own in zip(gradients, alone, strict=True):
        torch.testing.assert_close(together, own, rtol=1e-7, atol=1e-12)


def test_weights_move_and_the_lock_is_one():
    model = several()
    assert list(locks_in(model)) == ["rounds.0.conv1.lock"]
    (lock,) = locks_in(model).values()
    before = [net(batch()[0]) for net in model.rounds]
    lock.bias = lock.bias + 1
    after = [net(batch()[0]) for net in model.rounds]
    assert all(not torch.allclose(a, b) for a, b in zip(before, after, strict=True)), "all rounds see the new one"
    first, second = (net.conv2.weight.detach() for net in model.rounds[:2])
    assert 0.05 < float((first - second).norm() / first.norm()) < 0.2
