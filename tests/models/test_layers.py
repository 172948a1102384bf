"""Layers that models share: what they compute, and that they save nothing of their own."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from leakgauge.engine.penalties import collecting
from leakgauge.models.layers import (
    ACTIVATIONS,
    Enlarge,
    MaskedLinear,
    Normalize,
    VariationalBottleneck,
    activation,
    divergence,
    seeded,
)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_fresh_and_never_in_place(name):
    x = torch.linspace(-1, 1, 5)
    before = x.clone()
    activation(name)(x)
    assert torch.equal(x, before)
    assert activation(name) is not activation(name)


def test_normalisation_has_no_parameters_and_saves_nothing():
    layer = Normalize((0.5,), (0.5,), dims=3)
    assert not list(layer.parameters())
    assert not layer.state_dict()


def test_enlarging_is_the_bilinear_one():
    x = torch.rand(2, 3, 5, 7)
    large = nn.functional.interpolate(x, (11, 16), mode="bilinear", align_corners=False)
    torch.testing.assert_close(Enlarge((5, 7), (11, 16))(x), large)


def test_a_mask_acts_on_the_input_and_shows_in_the_gradient():
    layer = MaskedLinear(nn.Linear(4, 3), scale=2.0)
    assert layer.state_dict().keys() == {"weight", "bias"}
    layer.mask = torch.tensor([2.0, 0.0, 2.0, 0.0])
    x = torch.rand(5, 4) + 0.1
    torch.testing.assert_close(layer(x), nn.functional.linear(x * layer.mask, layer.weight, layer.bias))
    (gradient,) = torch.autograd.grad(layer(x).square().sum(), layer.weight)
    assert torch.equal(layer.visible_masks(gradient[None])[0], layer.mask)
    assert torch.equal(layer.visible_masks(gradient[None] + 1)[0], torch.ones(4))


def test_the_seed_decides_and_the_global_stream_goes_on():
    before = torch.get_rng_state()
    with seeded(3):
        first = torch.rand(2)
    with seeded(3):
        assert torch.equal(torch.rand(2), first)
    assert torch.equal(torch.get_rng_state(), before)


X = torch.rand(3, 6, generator=torch.Generator().manual_seed(0))


def test_without_noise_it_decodes_the_mean():
    layer = VariationalBottleneck(6, 4, beta=0.0)
    assert torch.equal(layer(X), layer.decode(layer.statistics(X)[:, :4]))


def test_with_noise_it_decodes_a_draw():
    layer = VariationalBottleneck(6, 4, beta=0.0)
    layer.noise = torch.tensor([1.0, -1.0, 0.5, 0.0])
    mu, raw = layer.statistics(X).chunk(2, 1)
    torch.testing.assert_close(layer(X), layer.decode(mu + F.softplus(raw) * layer.noise))
    assert torch.equal(copy.deepcopy(layer)(X), layer(X))
    assert layer.state_dict().keys() == {f"{part}.{p}" for part in ("statistics", "decode") for p in ("weight", "bias")}


def test_the_divergence_joins_the_loss_with_its_weight():
    for beta, expected in ((0.0, 0), (0.5, 1)):
        layer = VariationalBottleneck(6, 4, beta)
        with collecting() as penalties:
            layer(X)
        assert len(penalties) == expected
        if penalties:
            mu, raw = layer.statistics(X).chunk(2, 1)
            torch.testing.assert_close(penalties[0], beta * divergence(mu, F.softplus(raw)))


def test_divergence_is_that_of_torch_in_bits():
    mu, std = X[:, :3], X[:, 3:] + 0.1
    slow = torch.distributions.kl_divergence(torch.distributions.Normal(mu, std), torch.distributions.Normal(0.0, 1.0))
    torch.testing.assert_close(divergence(mu, std), slow.sum(1).mean() / torch.tensor(2.0).log())
