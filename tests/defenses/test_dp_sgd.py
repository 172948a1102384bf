"""METHODS D7: noise sigma C / B on the mean of clipped gradients, and a promise only where it is accounted."""

import pytest
import torch

from leakgauge.attacks.dlg import DLG
from leakgauge.attacks.inverting_gradients import InvertingGradients
from leakgauge.attacks.linear import Linear
from leakgauge.client.chain import chain, client_step
from leakgauge.data import draw_victims, load
from leakgauge.defenses._clipping import Clipping
from leakgauge.defenses.clip import Clip
from leakgauge.defenses.dp_sgd import DPSGD
from leakgauge.errors import BadInput, NotApplicable
from leakgauge.matching.gradient_matching import with_likelihood
from leakgauge.matching.noise import Noise
from leakgauge.models import load_model
from leakgauge.servers.imprint import Imprint
from leakgauge.types import Client, Guarantee, Known

MODEL = "mlp:hidden=64"  # 4,810 parameters: enough entries to measure noise by


def noise_of(defense, samples=1, local=Client(), seeds=(1, 2, 3)):  # noqa: B008
    """What is added to the clipped update: (T, P)."""
    batch = draw_victims(load("digits"), trials=len(seeds), batch_size=samples, seed=0)
    net = load_model(MODEL, load("digits").spec, 0)
    noisy, clean = (
        chain(client_step(local), d)(net, batch, seeds).tensors for d in (defense, Clip(defense.norm, scope="whole"))
    )
    return torch.cat([(noisy[n] - clean[n]).flatten(1) for n in noisy], 1)


@pytest.mark.parametrize("samples", [1, 4])
def test_the_noise_on_the_mean_is_sigma_c_over_b(samples):
    noise = noise_of(DPSGD(norm=0.5, sigma=1.2), samples)
    expected, entries = 1.2 * 0.5 / samples, noise[0].numel()
    assert ((noise.std(1) / expected - 1).abs() < 5 / (2 * entries) ** 0.5).all()  # five standard errors
    assert (noise.mean(1).abs() < 5 * expected / entries**0.5).all()


def test_every_local_step_adds_noise_of_its_own():
    """Over two steps that hardly move the weights, the difference holds the sum of two independent draws."""
    local = Client("fedavg", epochs=2, lr=1e-4)
    noise = noise_of(DPSGD(norm=0.5, sigma=1.0), 2, local) / 1e-4
    assert noise.std() == pytest.approx(2**0.5 * 0.5 / 2, rel=0.03)


def test_noise_belongs_to_its_seed():
    together, alone = noise_of(DPSGD(), seeds=(1, 2, 3)), noise_of(DPSGD(), seeds=(1,))
    torch.testing.assert_close(alone[0], together[0], rtol=0, atol=1e-5)
    assert torch.corrcoef(together).fill_diagonal_(0).abs().max() < 0.08


def test_its_promise_is_to_a_sample_and_needs_noise_a_rate_and_steps():
    """G15 through the defense's own fields."""
    told = {"sigma": 6, "q": 0.01, "rounds": 10_000}
    assert DPSGD(**told).guarantee() == Guarantee(pytest.approx(0.65925, abs=1e-4), 1e-5, "sample")
    assert DPSGD().guarantee() is None
    for missing in ("sigma", "q", "rounds"):
        assert DPSGD(**told | {missing: 0}).guarantee() is None
    assert DPSGD(norm=0, **told).guarantee() is None


def test_the_length_of_the_bound_does_not_enter_the_promise():
    told = {"sigma": 2, "q": 0.1, "rounds": 50}
    assert DPSGD(norm=0.01, **told).guarantee() == DPSGD(norm=10, **told).guarantee()


def test_fields_are_checked():
    with pytest.raises(BadInput, match="dp-sgd: q must be at least 0 and at most 1"):
        DPSGD(q=1.5)
    with pytest.raises(BadInput, match="dp-sgd: delta"):
        DPSGD(delta=0)


def test_batchnorm_that_mixes_samples_is_refused(model_with_batchnorm):
    batch = draw_victims(load("digits"), trials=1, batch_size=2, seed=0)
    with pytest.raises(NotApplicable, match="dp-sgd needs each sample's own gradient, and BatchNorm layer 'bn' mixes"):
        chain(client_step(Client(batchnorm="train")), DPSGD())(model_with_batchnorm, batch, (0,))


@pytest.fixture
def model_with_batchnorm():
    parts = {"flat": torch.nn.Flatten(), "bn": torch.nn.BatchNorm1d(64), "fc": torch.nn.Linear(64, 10)}
    net = torch.nn.Sequential()
    for name, part in parts.items():
        net.add_module(name, part)
    return net.eval()


def test_the_attacker_knows_the_noise_on_the_sum_and_the_bound(scene, first_layer):
    defense = DPSGD(norm=0.5, sigma=0.02)
    assert defense.ways(DLG()) == ("",)
    posed = scene(defense).posed(DLG(), Known(defense))
    assert posed.noise == Noise(0.01, "sum", "l2")
    assert with_likelihood(posed)[0].distance == "l2"
    assert posed.client_gradient.func.__self__ == Clipping(0.5, "whole", "sample")
    assert posed.variation > 0
    known = first_layer(defense)
    assert (known.combine, known.fit_scale) == ("least-squares", False)
    assert defense.ways(Imprint()) == ()


def test_an_attack_on_directions_is_played_with_the_clipping_alone_and_smoother_besides(scene):
    attack, made = InvertingGradients(), scene(DPSGD())
    ways = DPSGD().ways(attack)
    replaying, smoothing = (made.posed(attack, Known(DPSGD(), way)) for way in ways)
    assert ways == ("clipping alone", "smoother")
    assert smoothing.variation > replaying.variation == attack.tv
    assert (
        replaying.client_gradient.func.__self__
        == smoothing.client_gradient.func.__self__
        == Clipping(1.0, "whole", "sample")
    )


def test_without_noise_it_is_known_as_clipping(scene):
    silent, made = DPSGD(sigma=0, norm=0.5), scene(DPSGD(sigma=0, norm=0.5))
    for attack in (DLG(), InvertingGradients()):
        assert silent.ways(attack) == Clip(0.5).ways(attack) == ("",)
        one, other = (made.posed(attack, Known(d)) for d in (silent, Clip(0.5)))
        assert (
            one.client_gradient.func.__self__ == other.client_gradient.func.__self__ == Clipping(0.5, "whole", "sample")
        )
        assert (one.variation, one.noise, one.distance) == (other.variation, other.noise, other.distance)


def test_knowing_it_helps_and_noise_is_what_protects(attacked):
    little, much = DPSGD(sigma=0.003), DPSGD(sigma=1.0)
    plain, adaptive = (attacked(little, Linear(), "mlp:hidden=64", k).mean() for k in ((), (Known(little),)))
    assert adaptive > plain + 3
    assert attacked(much, Linear(), "mlp:hidden=64", (Known(much),)).mean() < adaptive - 15
