"""METHODS D7: Fed-CDP clips tensor by tensor at every local step, Fed-SDP the update once per round."""

import pytest
import torch
from torch import nn

from leakgauge.attacks.dlg import DLG
from leakgauge.attacks.linear import Linear
from leakgauge.client.chain import chain, client_step
from leakgauge.data import draw_victims, load
from leakgauge.defenses._clipping import Clipping
from leakgauge.defenses.clip import Clip
from leakgauge.defenses.fed_cdp import FedCDP, FedSDP
from leakgauge.errors import NotApplicable
from leakgauge.matching.gradient_matching import with_likelihood
from leakgauge.matching.noise import Noise
from leakgauge.models import load_model
from leakgauge.types import Client, Guarantee, Known

SEEDS = (1, 2)
ACCOUNTED = {"sigma": 6, "q": 0.01, "rounds": 10_000}


@pytest.fixture(scope="module")
def model():
    return load_model("mlp:hidden=64", load("digits").spec, 0)


def shared(defense, model, samples=2, local=Client()):  # noqa: B008
    batch = draw_victims(load("digits"), trials=2, batch_size=samples, seed=0)
    return chain(client_step(local), defense)(model, batch, SEEDS).tensors


@pytest.mark.parametrize(("noise", "tensors"), [("joint", 4), ("tensor", 1)])
def test_the_noise_of_fed_cdp_covers_all_tensors_or_one(model, noise, tensors):
    noisy = shared(FedCDP(norm=0.3, sigma=2, noise=noise), model)
    clean = shared(Clip(0.3, scope="layer"), model)
    added = torch.cat([(noisy[n] - clean[n]).flatten() for n in noisy])
    assert added.std() == pytest.approx(2 * 0.3 * tensors**0.5 / 2, rel=0.03)


def test_fed_cdp_without_noise_is_clipping_tensor_by_tensor(model):
    for local in (Client(), Client("fedavg", epochs=2)):
        bare, clipped = (shared(d, model, local=local) for d in (FedCDP(0.1, 0), Clip(0.1, scope="layer")))
        assert all(torch.equal(bare[n], clipped[n]) for n in bare)


def test_fed_sdp_clips_and_noises_what_is_shared(defended):
    long = {"w": torch.full((2, 40, 50), 3.0), "b": torch.zeros(2, 500)}
    short = defended(FedSDP(norm=0.5, sigma=0), long, SEEDS)
    assert short["w"].flatten(1).norm(dim=1).tolist() == pytest.approx([0.5, 0.5])
    noisy = defended(FedSDP(norm=0.5, sigma=2), long, SEEDS)
    added = torch.cat([(noisy[n] - short[n]).flatten() for n in long])
    assert added.std() == pytest.approx(1.0, rel=0.05)
    assert not torch.equal(noisy["b"][0], noisy["b"][1])


@pytest.mark.parametrize("kind", ["fedsgd", "fedavg"])
def test_fed_sdp_acts_once_whatever_the_client_did(model, kind):
    local = Client(kind, epochs=1 if kind == "fedsgd" else 3)
    bare = shared(FedSDP(norm=1e-3, sigma=0), model, local=local)
    assert torch.cat([t[0].flatten() for t in bare.values()]).norm() == pytest.approx(1e-3, rel=1e-5)


def test_statistics_that_leave_without_noise_are_refused():
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.BatchNorm1d(6), nn.Linear(6, 10)).eval()
    with pytest.raises(NotApplicable, match=r"'2\.running_mean' is shared as it is"):
        shared(FedSDP(), net, samples=3, local=Client("fedavg", batchnorm="train"))


def test_each_says_to_whom_its_promise_is_made():
    assert FedCDP(**ACCOUNTED).guarantee() == Guarantee(pytest.approx(0.65925, abs=1e-4), 1e-5, "sample")
    assert FedSDP(**ACCOUNTED).guarantee() == Guarantee(pytest.approx(0.65925, abs=1e-4), 1e-5, "client")
    assert FedCDP().guarantee() is FedSDP().guarantee() is None


def test_the_papers_noise_is_not_accounted():
    """It covers one tensor, and all of them leave."""
    assert FedCDP(noise="tensor", **ACCOUNTED).guarantee() is None


def test_zero_turns_them_off(model):
    bare = client_step(Client())
    assert FedCDP(norm=0).wrap(bare) is FedSDP(norm=0).wrap(bare) is bare
    assert FedCDP(norm=0).ways(DLG()) == FedSDP(norm=0).ways(Linear()) == ()
    assert FedCDP(norm=0, **ACCOUNTED).guarantee() is None


@pytest.mark.parametrize(("noise", "on"), [("joint", "joint-sum"), ("tensor", "sum")])
def test_the_attacker_knows_the_bound_of_each_tensor_and_what_the_noise_was_added_to(scene, noise, on):
    defense = FedCDP(norm=0.5, sigma=0.02, noise=noise)
    assert defense.ways(DLG()) == ("",)
    posed = scene(defense).posed(DLG(), Known(defense))
    assert posed.noise == Noise(0.01, on, "l2")
    assert posed.client_gradient.func.__self__ == Clipping(0.5, "layer", "sample")


def test_the_attacker_of_a_clipped_update_leaves_its_scale_open_and_weighs_its_noise(scene):
    defense = FedSDP(norm=0.5, sigma=0.02)
    assert defense.ways(DLG()) == ("",)
    posed = scene(defense).posed(DLG(), Known(defense))
    assert posed.noise == Noise(0.01, "update", "l2")
    assert with_likelihood(posed)[0].distance == posed.distance == "scaled"


def test_a_first_layers_length_is_fitted_where_tensors_were_clipped_apart(first_layer):
    for defense, apart in ((FedCDP(), True), (FedSDP(), False)):
        known = first_layer(defense)
        assert (known.combine, known.fit_scale) == ("least-squares", apart)


def test_knowing_it_helps(attacked):
    defense = FedCDP(norm=0.5, sigma=0.001)
    plain, adaptive = (attacked(defense, Linear(), "mlp:hidden=32", k).mean() for k in ((), (Known(defense),)))
    assert adaptive > plain + 10
