"""The lock on a normalisation, and several rounds of a locked model as one network."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from leakgauge.data import load
from leakgauge.errors import BadInput, NotApplicable
from leakgauge.models import load_model
from leakgauge.models.locked_norm import (
    ACTIVATIONS,
    LockedNorm,
    SeveralRounds,
    draw_locks,
    locks_in,
    place_for_norm,
    with_norm,
)

X = torch.rand(3, 4, 5, 5, generator=torch.Generator().manual_seed(0))


def locked(act="identity", length=8):
    return LockedNorm(nn.BatchNorm2d(4, affine=False), 4, length, act)


def test_gamma_one_and_beta_zero_is_batchnorm_without_affine():
    layer = locked().train()
    layer.bias = torch.tensor([1.0] * 4 + [0.0] * 4)
    torch.testing.assert_close(layer(X), nn.BatchNorm2d(4, affine=False).train()(X))


@pytest.mark.parametrize("act", ACTIVATIONS)
def test_scale_and_shift_are_what_the_key_opens(act):
    layer = locked(act)
    drawn = draw_locks([3], layer, "default")
    for part, values in drawn.items():
        setattr(layer, part, values[0])
    function = {"identity": lambda t: t, "sigmoid": torch.sigmoid, "relu": torch.relu}[act]
    opened = function(drawn["weight"][0] @ drawn["key"][0] + drawn["bias"][0])
    plain = nn.BatchNorm2d(4)
    plain.weight.data, plain.bias.data = opened[:4], opened[4:]
    torch.testing.assert_close(layer.train()(X), plain.train()(X))


def test_neither_key_nor_lock_is_a_parameter_or_saved():
    layer = locked()
    assert list(layer.parameters()) == []
    assert not any(part in name for name in layer.state_dict() for part in ("key", "weight", "bias"))


def test_locks_are_a_clients_own_and_in_their_range():
    layer = locked(length=1024)
    drawn = draw_locks([1, 2], layer, "default")
    assert drawn["weight"].shape == (2, 8, 1024)
    assert not torch.equal(drawn["key"][0], drawn["key"][1])
    assert drawn["key"].min() >= 0
    assert drawn["weight"].abs().max() <= 1 / 32
    assert 0.4 < draw_locks([1], layer, "uniform")["weight"].abs().max() <= 0.5


def test_the_ratio_of_the_locks_own_gradient_is_the_key():
    """Were the lock's gradient shared, the key would be too: row i of the weight's is (dL/draw_i) key."""
    layer = locked("sigmoid").double().train()
    for part, values in draw_locks([3], layer, "default").items():
        setattr(layer, part, values[0].requires_grad_(part != "key"))
    (layer(X.double()) * torch.arange(75.0).reshape(3, 1, 5, 5)).pow(2).mean().backward()
    torch.testing.assert_close(layer.weight.grad[2] / layer.bias.grad[2], layer.key)


def test_the_printed_derivatives_are_those_of_autograd():
    """Ren 2023, Eqs. 5.17 to 5.29, on one channel; Eqs. 5.27 and 5.28 sum over samples and places."""
    torch.manual_seed(0)
    u = torch.randn(7, 1, 3, 3, dtype=torch.float64, requires_grad=True)
    layer = LockedNorm(nn.BatchNorm2d(1, affine=False), 1, 5, "identity").double().train()
    layer.put({part: torch.rand_like(getattr(layer, part)) for part in ("key", "weight", "bias")})
    layer.share_gradient()
    s = layer(u)
    ds = torch.randn_like(s)
    du, dw, db = torch.autograd.grad(s, (u, layer.weight, layer.bias), ds)
    n, eps, mean = u.numel(), layer.norm.eps, u.mean()
    var = (u - mean).square().mean()
    hat = (u - mean) / (var + eps).sqrt()
    gamma = layer.weight[0] @ layer.key + layer.bias[0]
    d_hat = ds * gamma  # 5.29
    d_var = (-0.5 * d_hat * (u - mean) * (var + eps) ** -1.5).sum()  # 5.24
    d_mean = (-d_hat / (var + eps).sqrt()).sum() + d_var * (-2 * (u - mean)).mean()  # 5.25
    torch.testing.assert_close(du, d_hat / (var + eps).sqrt() + d_var * 2 * (u - mean) / n + d_mean / n)  # 5.26
    torch.testing.assert_close(dw[0], (ds * hat).sum() * layer.key)  # 5.27
    torch.testing.assert_close(dw[1], ds.sum() * layer.key)  # 5.28
    torch.testing.assert_close(db, torch.stack(((ds * hat).sum(), ds.sum())))  # 5.21, 5.22


def test_the_lock_takes_the_place_of_the_first_normalisation():
    model = load_model("resnet18-grnn:width=4", load("photos32").spec, 0)
    opened = with_norm(model, "first", 16)
    assert list(locks_in(opened)) == ["bn1"]
    gone = {n for n, _ in model.named_parameters()} - {n for n, _ in opened.named_parameters()}
    assert gone == {"bn1.weight", "bn1.bias"}
    assert torch.equal(opened.bn1.norm.running_var, model.bn1.running_var)
    assert model.bn1.weight is not None
    assert with_norm(model, "first").bn1.weight is not None, "a plain BatchNorm stays as it is"


def test_a_model_without_normalisation_gets_one_behind_its_first_convolution():
    model = load_model("lenet-dlg", load("digits").spec, 0)
    assert place_for_norm(model, "first") == "conv1"
    assert list(locks_in(with_norm(model, "first", 16))) == ["conv1.lock"]
    assert list(locks_in(with_norm(model, "conv2", 16))) == ["conv2.lock"]
    plain = with_norm(model, "first")
    assert isinstance(plain.conv1.norm, nn.BatchNorm2d)
    assert plain.conv1.norm.affine
    mlp = with_norm(load_model("mlp", load("digits").spec, 0), "first", 16)
    assert isinstance(next(iter(locks_in(mlp).values())).norm, nn.BatchNorm1d)


def test_group_normalisation_can_be_locked_too():
    net = nn.Sequential(nn.Conv2d(4, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(36, 2))
    opened = with_norm(net, "first", 8)
    opened[1].bias = torch.tensor([1.0] * 4 + [0.0] * 4)
    torch.testing.assert_close(opened(X), net(X))


def test_what_does_not_fit_is_refused():
    model = load_model("lenet-dlg", load("digits").spec, 0)
    with pytest.raises(BadInput, match=r"layer must be one of .*conv1.*got 'conv9'"):
        with_norm(model, "conv9", 8)
    with pytest.raises(NotApplicable, match="Conv2d or Linear"):
        with_norm(nn.Sequential(nn.Flatten()), "first", 8)
    assert list(locks_in(with_norm(nn.Linear(3, 2), "first", 8))) == ["lock"]


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
