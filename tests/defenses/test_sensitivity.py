"""METHODS D4: noise on d of s slices and nowhere else, compensation at the server, and who gets past it."""

import inspect

import pytest
import torch
from torch import nn

from leakgauge.attacks.cpl import CPL
from leakgauge.attacks.ggl import GGL
from leakgauge.attacks.grnn import GRNN
from leakgauge.attacks.inverting_gradients import InvertingGradients
from leakgauge.attacks.linear import Linear
from leakgauge.attacks.peeling import Peeling
from leakgauge.attacks.random_guess import RandomGuess
from leakgauge.client.chain import chain, client_step
from leakgauge.defenses._clipping import Clipping
from leakgauge.defenses.gaussian import Gaussian
from leakgauge.defenses.sensitivity import Sensitivity
from leakgauge.defenses.sensitivity.slicing import flattened
from leakgauge.errors import BadInput
from leakgauge.servers.imprint import Imprint
from leakgauge.servers.mkor import MKOR
from leakgauge.types import Batch, Client, Known, SharedUpdate


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 20), nn.Sigmoid(), nn.Linear(20, 10))


@pytest.fixture(scope="module")
def batch():
    g = torch.Generator().manual_seed(0)
    return Batch(torch.rand(4, 2, 1, 8, 8, generator=g), torch.randint(10, (4, 2), generator=g))


def shared(net, batch, *defenses):
    return flattened(chain(client_step(Client()), *defenses)(net, batch, range(batch.trials)).tensors)


@pytest.mark.parametrize("packing", ["balanced", "sweep"])
def test_the_chosen_slices_are_noised_and_the_others_exact(net, batch, packing):
    defense = Sensitivity(gamma=0.3, std=0.5, packing=packing, root=10)
    noise = shared(net, batch, defense) - shared(net, batch)
    inside = defense.cut(net, (1, 8, 8)).touched(defense.chosen(range(4)))
    assert (noise[~inside] == 0).all()
    assert abs(noise[inside].std() - 0.5) < 0.03


def test_as_released_bounds_overlap_and_the_last_layer_lands_in_the_last_slice(net):
    cut = Sensitivity(as_released=True, root=10).cut(net, (1, 8, 8))
    assert cut.overlap
    assert (cut.of_entry[-211:] == 9).all()  # the last weight has 200 entries and no risk, the last bias 10


@pytest.mark.parametrize(("gamma", "noised"), [(0.0, 1), (0.05, 1), (0.29, 2), (0.3, 3), (0.7, 7), (1.0, 10)])
def test_how_many_slices_are_noised(gamma, noised):
    assert Sensitivity(gamma=gamma).noised == noised


def test_each_samples_gradient_is_clipped_and_the_noise_follows_the_bound(net, batch):
    clean = shared(net, batch, Sensitivity(std=0.0, clip=0.01))
    assert (clean.norm(dim=1) <= 0.01 + 1e-7).all()
    noisy = shared(net, batch, Sensitivity(std=2.0, clip=0.01, gamma=1.0, root=10))
    assert abs((noisy - clean).std() - 0.02) < 0.001


def test_the_server_takes_noise_out_and_the_released_one_does_not():
    g = torch.Generator().manual_seed(0)
    signal = 0.01 * (torch.randn(386, 2, generator=g) @ torch.randn(2, 41, generator=g)).reshape(1, -1)
    noised = torch.rand(10, 15_826, generator=g) < 0.3
    updates = SharedUpdate("gradient", {"w": signal + 0.1 * noised * torch.randn(10, 15_826, generator=g)})
    mean = updates.tensors["w"].mean(0, keepdim=True)
    kept = Sensitivity().aggregate(updates).tensors["w"]
    assert (kept - signal).norm() < (mean - signal).norm() / 3
    torch.testing.assert_close(Sensitivity(as_released=True).aggregate(updates).tensors["w"], mean)
    torch.testing.assert_close(Sensitivity(std=0).aggregate(updates).tensors["w"], mean)


def test_the_server_uses_the_weights_of_the_clients():
    """With one weight near 1 the noise is nearly that of one client; equal weights would find too little of it."""
    g = torch.Generator().manual_seed(0)
    noised = torch.rand(10, 15_826, generator=g) < 0.3
    updates = SharedUpdate("gradient", {"w": 0.1 * noised * torch.randn(10, 15_826, generator=g)})
    weights = torch.tensor([0.91] + [0.01] * 9, dtype=torch.float64)
    scaled = updates.map(lambda _, t: t * (10 * weights).to(t)[:, None])
    knowing = Sensitivity().aggregate_weighted(scaled, weights).tensors["w"]
    assuming = Sensitivity().aggregate(scaled).tensors["w"]
    assert knowing.norm() < 0.5 * assuming.norm()


def test_the_printed_variance_takes_nothing_out_of_a_mean():
    g = torch.Generator().manual_seed(0)
    updates = SharedUpdate("gradient", {"w": 0.1 * torch.randn(10, 15_826, generator=g)})
    mean = updates.tensors["w"].mean(0, keepdim=True)
    torch.testing.assert_close(Sensitivity(variance="printed").aggregate(updates).tensors["w"], mean)
    above = Sensitivity(variance="printed", keep="above").aggregate(updates).tensors["w"]
    assert above.norm() < 1e-6


def test_slices_are_cut_once_from_the_model_a_training_begins_with(net, batch, monkeypatch):
    cuts = []
    real_cut = Sensitivity.cut
    monkeypatch.setattr(Sensitivity, "cut", lambda self, *given: cuts.append(1) or real_cut(self, *given))
    torch.manual_seed(1)
    later = nn.Sequential(nn.Flatten(), nn.Linear(64, 20), nn.Sigmoid(), nn.Linear(20, 10))
    defense = Sensitivity(root=10, packing="sweep")
    begun = defense.begun(net, (1, 8, 8))
    for _ in range(3):
        noise = shared(later, batch, begun) - shared(later, batch)
    assert len(cuts) == 1
    inside = real_cut(defense, net, (1, 8, 8)).touched(defense.chosen(range(4)))
    assert (noise[~inside] == 0).all()
    anew = Sensitivity(root=10, packing="sweep", recut=True).begun(net, (1, 8, 8))
    shared(later, batch, anew)
    assert len(cuts) == 2
    assert begun == defense, "what has begun has the same settings"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("keep", "below"),
        ("variance", "wrong"),
        ("packing", "best"),
        ("roots", "stolen"),
        ("bias", 2.0),
        ("probes", -1),
        ("recut", "perhaps"),
    ],
)
def test_settings_out_of_range_are_refused(field, value):
    with pytest.raises(BadInput, match=f"sensitivity: {field} must be"):
        Sensitivity(**{field: value})


def test_real_roots_need_data_and_made_up_ones_take_none():
    with pytest.raises(BadInput, match="sensitivity: root_data must be the name of a data set"):
        Sensitivity(roots="real")
    with pytest.raises(BadInput, match="sensitivity: root_data must be left out"):
        Sensitivity(root_data="mnist")


def known_to(posed):
    """What the search of this problem knows of the slices, and whether it takes the noise out first."""
    return tuple(inspect.getclosurevars(posed.strategy).nonlocals[name] for name in ("known", "compensate"))


@pytest.mark.parametrize("attack", [CPL(), InvertingGradients()], ids=lambda a: a.name)
def test_gradient_matching_knows_all_that_is_public(scene, attack):
    defense = Sensitivity(gamma=0.2, packing="sweep", root=10)
    assert defense.ways(attack) == ("without noised slices", "compensated")
    made = scene(defense)
    robust, compensating = (known_to(made.posed(attack, Known(defense, way))) for way in defense.ways(attack))
    assert robust == (defense, False)
    assert compensating == (defense, True)


@pytest.mark.parametrize("attack", [GRNN(), GGL()], ids=lambda a: a.name)
def test_a_generators_pictures_are_not_told_apart_by_slices(attack):
    """Its numbers make all pictures at once: noise is taken out beforehand."""
    assert Sensitivity().ways(attack) == ("compensated",)


def test_with_clipping_the_attacker_knows_the_bound_too(scene):
    defense = Sensitivity(clip=0.5, root=10)
    posed = scene(defense).posed(CPL(), Known(defense, "without noised slices"))
    assert posed.client_gradient.func.__self__ == Clipping(0.5, "whole", "sample")
    assert known_to(posed)[0].noise_std == 0.05


def test_clipping_without_noise_is_known_as_clipping(scene, first_layer):
    defense = Sensitivity(std=0, clip=0.5)
    assert defense.ways(CPL()) == defense.ways(Linear()) == defense.ways(Peeling()) == ("",)
    posed = scene(defense).posed(CPL(), Known(defense))
    assert posed.client_gradient.func.__self__ == Clipping(0.5, "whole", "sample")
    assert posed.strategy is None
    assert first_layer(defense).combine == "least-squares"


def test_a_tampering_server_speaks_louder_unless_clipped():
    assert Sensitivity().informs_server(MKOR()) == MKOR().louder() != MKOR()
    assert Sensitivity().ways(MKOR()) == ("",)
    assert Sensitivity().ways(Imprint()) == (), "it cannot"
    assert Sensitivity(clip=1.0).ways(MKOR()) == Sensitivity(std=0).ways(MKOR()) == ()


def test_a_floor_has_nothing_to_know_and_nothing_is_promised():
    assert Sensitivity().ways(RandomGuess()) == ()
    assert Sensitivity().guarantee() is None


@pytest.mark.parametrize("std", [0.01, 1.0, 100.0])
def test_parallel_rows_are_exact_at_every_noise_level(attacked, first_layer, std):
    """FIELD.md: an FC-first network, half the slices noised."""
    defense = Sensitivity(gamma=0.5, std=std, root=10)
    assert defense.ways(Linear()) == ("",)
    assert first_layer(defense).combine == "parallel"
    assert attacked(defense, Linear(), "mlp:hidden=64", (Known(defense),)).min() > 60
    fitted_to_all_rows = (Known(Gaussian(std)),)
    assert attacked(defense, Linear(), "mlp:hidden=64", fitted_to_all_rows).mean() < 40


def test_a_share_above_one_is_refused():
    with pytest.raises(BadInput, match="sensitivity: gamma must be at least 0 and at most 1"):
        Sensitivity(gamma=1.5)
