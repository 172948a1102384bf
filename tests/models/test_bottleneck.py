"""The layer PRECODE adds: the mean code in the public model, a draw around it once the noise is set."""

import copy

import torch
import torch.nn.functional as F

from leakgauge.engine.penalties import collecting
from leakgauge.models.bottleneck import VariationalBottleneck, divergence

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
