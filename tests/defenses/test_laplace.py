"""METHODS D1: Laplace(b) has variance 2 b^2, and absolute distance is its likelihood."""

import pytest
import torch

from leakgauge.attacks.dlg import DLG
from leakgauge.attacks.linear import Linear
from leakgauge.defenses.gaussian import Gaussian
from leakgauge.defenses.laplace import Laplace
from leakgauge.errors import BadInput
from leakgauge.matching.gradient_matching import with_likelihood
from leakgauge.matching.noise import Noise
from leakgauge.types import Known

ZEROS = {"w": torch.zeros(4, 60, 60)}


def test_the_variance_is_twice_the_scale_squared(defended):
    noise = defended(Laplace(scale=0.3), ZEROS, range(4))["w"]
    assert abs(noise.var() / (2 * 0.3**2) - 1) < 0.05
    assert abs(noise.abs().mean() / 0.3 - 1) < 0.03  # E|n| = b
    assert abs((noise**4).mean() / (noise**2).mean() ** 2 - 6) < 0.8  # heavier tails than a normal's 3


def test_it_is_unbiased_over_10000_draws(defended):
    g = torch.tensor([1.0, -2.0])
    draws = defended(Laplace(scale=1.0), {"w": g.expand(10_000, 2)}, range(10_000))["w"]
    torch.testing.assert_close(draws.mean(0), g, rtol=0, atol=0.06)


def test_the_seed_decides_and_trials_are_independent(defended):
    one, again, other = (defended(Laplace(scale=1.0), ZEROS, s)["w"] for s in (range(4), range(4), range(4, 8)))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert (torch.corrcoef(one.flatten(1)) - torch.eye(4)).abs().max() < 0.08
    assert torch.equal(defended(Laplace(scale=1.0), {"w": ZEROS["w"][:1]}, (2,))["w"][0], one[2])


def test_it_is_not_the_gaussians_noise(defended):
    one, other = (defended(d, ZEROS, range(4))["w"].flatten() for d in (Laplace(scale=1.0), Gaussian(std=1.0)))
    assert abs(torch.corrcoef(torch.stack((one, other)))[0, 1]) < 0.05


def test_zero_is_the_identity_and_has_no_adaptive_attack(defended):
    g = {"w": torch.tensor([[1.0, 2.0]])}
    assert torch.equal(defended(Laplace(scale=0), g)["w"], g["w"])
    assert Laplace(scale=0).ways(DLG()) == ()


def test_the_attacker_who_knows_compares_by_absolute_distance(scene, first_layer):
    defense = Laplace(scale=0.02)
    assert defense.ways(DLG()) == ("",)
    posed = scene(defense).posed(DLG(), Known(defense))
    assert posed.noise == Noise(0.02, "update", "l1")
    likely, scale = with_likelihood(posed)
    assert (likely.distance, scale) == ("l1", 0.02)
    assert likely.variation == posed.variation > 0
    assert first_layer(Laplace(scale=0.1)).combine == "least-squares"


def test_it_promises_nothing():
    assert Laplace().guarantee() is None


def test_a_negative_scale_is_refused():
    with pytest.raises(BadInput, match="laplace: scale must be at least 0"):
        Laplace(scale=-1)


def test_the_attacked_gradient_is_the_noisy_one_and_knowing_helps(attacked):
    defense = Laplace(scale=0.002)
    plain, clean = (attacked(d, Linear(), "mlp:hidden=64").mean() for d in (defense, Laplace(scale=0)))
    assert clean > plain + 10
    assert attacked(defense, Linear(), "mlp:hidden=64", (Known(defense),)).mean() > plain + 3


def test_relative_noise_is_measured_by_each_tensors_own_spread(defended):
    g = torch.Generator().manual_seed(0)
    update = {"w": 5 * torch.randn(4, 50, 60, generator=g)}
    noise = defended(Laplace(scale=0.1, relative=True), update, range(4))["w"] - update["w"]
    assert abs(noise.std() / (0.1 * 5 * 2**0.5) - 1) < 0.05
