"""METHODS D1: the noise has the standard deviation it says, and the attacker who knows it is offered."""

import pytest
import torch

from leakgauge.attacks.dlg import DLG
from leakgauge.attacks.ggl import GGL
from leakgauge.attacks.idlg import IDLG
from leakgauge.attacks.inverting_gradients import InvertingGradients
from leakgauge.attacks.linear import Linear
from leakgauge.attacks.random_guess import RandomGuess
from leakgauge.client.chain import chain, client_step
from leakgauge.client.observe import facts_about, observe
from leakgauge.data import draw_victims, load
from leakgauge.defenses.gaussian import Gaussian
from leakgauge.defenses.laplace import Laplace
from leakgauge.errors import BadInput
from leakgauge.matching.gradient_matching import with_likelihood
from leakgauge.matching.noise import Noise
from leakgauge.matching.updates import observed_gradient
from leakgauge.models import load_model
from leakgauge.servers.imprint import Imprint
from leakgauge.servers.mkor import MKOR
from leakgauge.types import Client, Known, threat_model

ZEROS = {"w": torch.zeros(4, 50, 60), "b": torch.zeros(4, 100)}


def test_the_noise_has_the_standard_deviation_asked_for(defended):
    noise = defended(Gaussian(std=0.3), ZEROS, range(4))["w"]
    assert abs(noise.std() - 0.3) < 0.01
    assert abs((noise**4).mean() / (noise**2).mean() ** 2 - 3) < 0.15  # a normal distribution's kurtosis


def test_it_is_unbiased_over_10000_draws(defended):
    g = torch.tensor([1.0, -2.0])
    draws = defended(Gaussian(std=1.0), {"w": g.expand(10_000, 2)}, range(10_000))["w"]
    torch.testing.assert_close(draws.mean(0), g, rtol=0, atol=0.05)


def test_the_seed_decides_and_trials_are_independent(defended):
    one, again, other = (defended(Gaussian(std=1.0), ZEROS, seeds)["w"] for seeds in (range(4), range(4), range(4, 8)))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    rows = torch.corrcoef(one.flatten(1))
    assert (rows - torch.eye(4)).abs().max() < 0.08


def test_a_trial_gets_the_same_noise_alone_and_among_others(defended):
    together = defended(Gaussian(std=1.0), ZEROS, (3, 4, 5, 6))
    alone = defended(Gaussian(std=1.0), {n: t[:1] for n, t in ZEROS.items()}, (5,))
    assert torch.equal(alone["w"][0], together["w"][2])


def test_tensors_of_the_same_shape_get_different_noise(defended):
    noise = defended(Gaussian(std=1.0), {"a": torch.zeros(1, 40), "b": torch.zeros(1, 40)})
    assert not torch.equal(noise["a"], noise["b"])


def test_zero_is_the_identity_and_has_no_adaptive_attack(defended):
    g = {"w": torch.randn(1, 5, generator=torch.Generator().manual_seed(0))}
    assert torch.equal(defended(Gaussian(std=0), g)["w"], g["w"])
    assert Gaussian(std=0).ways(DLG()) == ()


@pytest.mark.parametrize("attack", [DLG(), DLG(distance="l1"), IDLG(rule="bias")], ids=lambda a: a.spec)
def test_gradient_matching_weighs_the_noise_by_its_likelihood(scene, attack):
    defense = Gaussian(std=0.02)
    assert defense.ways(attack) == ("",)
    posed = scene(defense).posed(attack, Known(defense))
    assert posed.noise == Noise(0.02, "update", "l2")
    likely, scale = with_likelihood(posed)
    assert (likely.distance, scale) == ("l2", 0.02)
    assert likely.variation == posed.variation > 0


@pytest.mark.parametrize(("defense", "power"), [(Gaussian(std=1e-4), 2), (Laplace(scale=1e-4), 1)])
def test_noise_on_a_weight_difference_is_restated_for_the_gradient_that_is_matched(defense, power):
    """Three steps at rate 0.01 divide the difference by 0.03: the noise in the gradient is 33 times as large."""
    digits, local = load("digits"), Client("fedavg", epochs=3, lr=0.01)
    net, batch = load_model("mlp:hidden=64", digits.spec, 0), draw_victims(digits, 2, 1, 0)
    factors = {}
    for told in (Client(), local):
        noisy, clean = (chain(client_step(told), *d)(net, batch, (0, 1)) for d in ((defense,), ()))
        facts = facts_about(net, batch, digits.spec, told, None)
        seen, bare = (observe(net, u, threat_model("honest-but-curious"), facts) for u in (noisy, clean))
        posed = defense.informs(DLG().problem(seen, (0, 1)), seen, "")
        assert posed.noise.on == "update"
        (likely, scale), there = with_likelihood(posed), observed_gradient(seen)
        added = torch.cat([(there[n] - g).flatten() for n, g in observed_gradient(bare).items()])
        spread = added.std() if power == 2 else added.abs().mean()  # the scale of either distribution
        assert scale == pytest.approx(float(spread), rel=0.05)
        factors[told.kind] = scale / posed.noise.scale, likely.variation / posed.variation
    assert factors["fedsgd"] == (1, 1)
    assert factors["fedavg"] == pytest.approx((1 / 0.03, (1 / 0.03) ** power))


def test_the_ratio_attack_fits_all_rows(first_layer):
    assert first_layer(Gaussian(std=0.1)).combine == "least-squares"


def test_a_floor_has_nothing_to_know():
    assert Gaussian(std=0.1).ways(RandomGuess()) == ()


def test_a_search_among_a_generators_pictures_has_nothing_to_weigh_against_the_noise():
    assert Gaussian(std=0.1).ways(GGL()) == ()


def test_it_promises_nothing():
    assert Gaussian(std=100.0).guarantee() is None


def test_negative_noise_is_refused():
    with pytest.raises(BadInput, match="gaussian: std must be at least 0"):
        Gaussian(std=-0.1)


def test_the_attacked_gradient_is_the_noisy_one(attacked):
    """More noise, worse pictures: the noise reaches the attack (METHODS 0.7)."""
    clean, some, much = (attacked(Gaussian(std=s), Linear(), "mlp:hidden=32").mean() for s in (0.0, 0.003, 0.3))
    assert clean > 60
    assert clean > some + 10
    assert some > much + 10


def test_knowing_it_helps(attacked):
    defense = Gaussian(std=0.003)
    plain, knowing = (attacked(defense, Linear(), "mlp:hidden=64", k).mean() for k in ((), (Known(defense),)))
    assert knowing > plain + 3


@pytest.mark.parametrize(("tv", "expected"), [(1e-4, 0.01), (0.5, 0.5)])
def test_an_attack_on_directions_smooths_more(scene, tv, expected):
    posed = scene(Gaussian(0.1)).posed(InvertingGradients(tv=tv), Known(Gaussian(0.1)))
    assert (posed.variation, posed.noise) == (expected, None)


def test_a_tampering_server_sends_larger_gradients():
    assert Gaussian(0.1).ways(MKOR()) == ("",)
    assert Gaussian(0.1).informs_server(MKOR()) == MKOR().louder() != MKOR()
    assert Gaussian(0).ways(MKOR()) == Gaussian(0.1, relative=True).ways(MKOR()) == ()
    assert Gaussian(0.1).ways(Imprint()) == (), "it has no such knob"


def test_relative_noise_is_measured_by_each_tensors_own_spread(defended, scene):
    g = torch.Generator().manual_seed(0)
    update = {"w": 5 * torch.randn(4, 50, 60, generator=g), "b": 0.01 * torch.randn(4, 1000, generator=g)}
    noisy = defended(Gaussian(std=0.1, relative=True), update, range(4))
    assert abs((noisy["w"] - update["w"]).std() - 0.5) < 0.01
    assert abs((noisy["b"] - update["b"]).std() - 0.001) < 0.0001
    relative = Gaussian(std=0.1, relative=True)
    made = scene(relative)
    for attack in (InvertingGradients(), DLG()):  # noise of no one size has no likelihood
        posed = made.posed(attack, Known(relative))
        assert posed.variation > made.posed(attack).variation
        assert posed.noise is None
