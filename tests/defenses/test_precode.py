"""METHODS D9, G16: the noise is the client's own, and the update gives both it and the image away all the same."""

import copy

import pytest
import torch
from torch import nn

from leakgauge.attacks.cpl import CPL
from leakgauge.attacks.dlg import DLG
from leakgauge.attacks.grnn import GRNN
from leakgauge.attacks.inverting_gradients import InvertingGradients
from leakgauge.attacks.linear import Linear
from leakgauge.attacks.random_guess import RandomGuess
from leakgauge.client.chain import chain, client_step, prepared
from leakgauge.client.observe import facts_about, observe
from leakgauge.data import draw_victims, load
from leakgauge.defenses.clip import Clip
from leakgauge.defenses.dp_sgd import DPSGD
from leakgauge.defenses.dropout import Dropout
from leakgauge.defenses.precode import Precode
from leakgauge.engine.randomness import normal
from leakgauge.errors import BadInput, NotApplicable
from leakgauge.metrics.scoring import score
from leakgauge.models import load_model
from leakgauge.models.layers import divergence
from leakgauge.models.structure import first_linear, last_linear
from leakgauge.setup.plan import informed_by
from leakgauge.types import Client, Known, threat_model

SEEDS = (21, 22, 23)
SMALL = Precode(width=16)
EXAMPLE = torch.full((1, 1, 8, 8), 0.5)


@pytest.fixture(scope="module")
def model():
    return load_model("lenet-dlg:filters=4", load("digits").spec, seed=0)


@pytest.fixture(scope="module")
def victims():
    return draw_victims(load("digits"), trials=3, batch_size=1, seed=0)


def shared(model, batch, *defenses, local=None):
    return chain(client_step(local or Client()), *defenses)(prepared(model, *defenses), batch, SEEDS)


def seen(model, batch, defense, data="digits"):
    net, spec = prepared(model, defense), load(data).spec
    facts = facts_about(net, batch, spec, Client(), None)
    return observe(net, shared(model, batch, defense), threat_model("honest-but-curious"), facts)


def test_the_bottleneck_stands_before_the_last_layer_whose_parameters_stay(model):
    extended = SMALL.prepare(model)
    added = {n: tuple(p.shape) for n, p in extended.named_parameters() if "bottleneck" in n}
    assert added == {
        "fc.bottleneck.statistics.weight": (32, 16),
        "fc.bottleneck.statistics.bias": (32,),
        "fc.bottleneck.decode.weight": (16, 16),
        "fc.bottleneck.decode.bias": (16,),
    }
    assert torch.equal(extended.fc.linear.weight, model.fc.weight)
    assert type(model.fc) is nn.Linear
    assert last_linear(extended, EXAMPLE) == "fc.linear"
    assert not extended.training
    assert not any("noise" in name for name in extended.state_dict())
    again, other = SMALL.prepare(model), Precode(width=16, seed=1).prepare(model)
    assert torch.equal(again.fc.bottleneck.decode.weight, extended.fc.bottleneck.decode.weight)
    assert not torch.equal(other.fc.bottleneck.decode.weight, extended.fc.bottleneck.decode.weight)


@pytest.mark.parametrize("beta", [0.0, 1e-3, 1.0])
def test_the_gradient_is_that_of_the_loss_written_out_by_hand(model, victims, beta):
    defense = Precode(width=16, beta=beta)
    net, update = defense.prepare(model), shared(model, victims, defense)
    layer = net.fc.bottleneck
    for t, noise in enumerate(normal(SEEDS, "precode", (16,))):
        raw = layer.statistics(model[:-1](victims.inputs[t]))
        mu, std = raw[:, :16], nn.functional.softplus(raw[:, 16:])
        logits = net.fc.linear(layer.decode(mu + std * noise))
        bits = (-0.5 * (1 + 2 * std.log() - mu**2 - std**2)).sum(1).mean() / torch.tensor(2.0).log()
        loss = nn.functional.cross_entropy(logits, victims.labels[t]) + beta * bits
        names = [n for n, _ in net.named_parameters()]
        weights = [dict(model.named_parameters()).get(n, p) for n, p in net.named_parameters()]
        for name, expected in zip(names, torch.autograd.grad(loss, weights), strict=True):
            torch.testing.assert_close(update.tensors[name][t], expected, rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize("local", [Client(), Client("fedavg", epochs=2)], ids=lambda told: told.kind)
@pytest.mark.parametrize("samples", [1, 3])
def test_every_samples_own_gradient_has_the_divergence(model, local, samples):
    """Clipping that shortens nothing gives the gradient of the whole loss, sample by sample or not."""
    batch = draw_victims(load("digits"), trials=3, batch_size=samples, seed=0)
    defense, silent = Precode(width=16, beta=1.0), Precode(width=16, beta=0.0)
    whole = shared(model, batch, defense, local=local).tensors
    for private in (Clip(norm=1e6), DPSGD(norm=1e6, sigma=0)):
        for name, tensor in shared(model, batch, private, defense, local=local).tensors.items():
            torch.testing.assert_close(tensor, whole[name], rtol=1e-3, atol=1e-6, msg=name)
        without = shared(model, batch, private, silent, local=local).tensors["conv1.weight"]
        assert not torch.allclose(without, whole["conv1.weight"], rtol=1e-3)


def test_divergence_is_zero_at_the_standard_normal_and_positive_elsewhere():
    assert divergence(torch.zeros(2, 5), torch.ones(2, 5)) == 0
    assert divergence(torch.full((2, 5), 0.1), torch.ones(2, 5)) > 0
    assert divergence(torch.zeros(2, 5), torch.full((2, 5), 0.9)) > 0


def test_the_noise_is_a_clients_own_and_hidden_in_the_public_model(model, victims):
    twins = victims.take([0, 0, 0])
    update = shared(model, twins, SMALL)
    assert not torch.equal(update.tensors["conv1.weight"][0], update.tensors["conv1.weight"][1])
    assert (SMALL.prepare(model).fc.bottleneck.noise == 0).all()


@pytest.mark.parametrize("known", [(), (Known(Precode()),)], ids=["plain", "informed"])
def test_the_first_layer_gives_the_image_away_through_precodes_mlp(known, real_data):
    """G16: exact to rounding, whatever the bottleneck does."""
    cifar = load("cifar10", root=real_data("cifar10"))
    batch = draw_victims(cifar, trials=3, batch_size=1, seed=0)
    net = load_model("mlp-precode", cifar.spec, seed=0)
    defense = Precode()
    facts = facts_about(defense.prepare(net), batch, cifar.spec, Client(), None)
    told = threat_model("honest-but-curious")
    result = Linear()(observe(defense.prepare(net), shared(net, batch, defense), told, facts), SEEDS, known=known)
    assert (result.inputs - batch.inputs).abs().max() < 1e-6
    assert torch.equal(result.labels, batch.labels)


def test_the_first_layer_gives_digits_away_too(victims):
    net = load_model("mlp-precode:hidden=32", load("digits").spec, seed=0)
    assert first_linear(Precode().prepare(net), EXAMPLE) == "fc1"
    result = Linear()(seen(net, victims, Precode()), SEEDS)
    assert (result.inputs - victims.inputs).abs().max() < 1e-5


def test_the_last_linear_layer_is_found_inside_and_alone():
    nested = nn.Sequential(nn.Sequential(nn.Linear(4, 6)), nn.Sequential(nn.Linear(6, 3, bias=False), nn.Identity()))
    assert last_linear(SMALL.prepare(nested), torch.rand(1, 4)) == "1.0.linear"
    assert [n for n, _ in SMALL.prepare(nn.Linear(4, 2)).named_children()] == ["bottleneck", "linear"]
    with pytest.raises(NotApplicable, match=r"nn\.Linear"):
        SMALL.prepare(nn.Conv2d(1, 2, 3))


def test_it_chains_with_dropout_in_either_order(model, victims):
    for defenses in ((SMALL, Dropout()), (Dropout(), SMALL)):
        update = shared(model, victims, *defenses)
        assert (update.tensors["fc.linear.weight"] == 0).all(1).any()


def test_local_steps_and_buffers_pass_through(victims):
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.BatchNorm1d(6), nn.Linear(6, 10)).eval()
    batch = draw_victims(load("digits"), trials=3, batch_size=4, seed=0)
    update = shared(net, batch, SMALL, local=Client("fedavg", batchnorm="train"))
    assert update.buffers["2.running_mean"].shape == (3, 6)
    assert not any("noise" in name for name in update.buffers)


def test_settings_outside_their_range_are_refused():
    with pytest.raises(BadInput, match="precode: beta must be at least 0"):
        Precode(beta=-1)
    with pytest.raises(BadInput, match="precode: width must be at least 1"):
        Precode(width=0)


@pytest.mark.parametrize("attack", [DLG(), InvertingGradients(), GRNN()], ids=lambda a: a.name)
def test_the_attacker_who_knows_reads_the_noise_or_searches_for_it(scene, attack):
    """Without the bottleneck's own gradients and those behind it, either way."""
    assert SMALL.ways(attack) == ("read off the update", "searched for")
    made = scene(SMALL)
    reading, searching = (made.posed(attack, Known(SMALL, way)) for way in SMALL.ways(attack))
    assert (list(reading.masks), list(reading.hidden)) == (["fc.bottleneck.noise"], [])
    assert (list(searching.masks), list(searching.hidden)) == ([], ["fc.bottleneck.noise"])
    for posed in (reading, searching):
        assert {name.split(".")[0] for name in posed.observed} == {"conv1", "conv2", "conv3"}


def test_the_weaker_way_takes_the_noise_as_zero(scene):
    (weaker,) = SMALL.weaker_ways(DLG())
    made = scene(SMALL)
    posed = made.posed(DLG(), Known(SMALL, weaker))
    assert (weaker, posed.masks, posed.hidden) == ("taken as zero", {}, {})
    assert {name.split(".")[0] for name in posed.observed} == {"conv1", "conv2", "conv3"}


def test_a_first_layer_is_fitted_to_all_rows_and_a_floor_has_nothing_to_know(first_layer):
    assert first_layer(SMALL).combine == "least-squares"
    assert SMALL.ways(RandomGuess()) == ()


def test_knowing_beats_not_knowing(model, victims):
    attack, digits = CPL(steps=12, threshold=1e-10), load("digits").spec
    observation = seen(model, victims, SMALL)
    plain, reading, searching = (
        score(victims, attack(observation, SEEDS, known=known), digits).records["psnr"].median()
        for known in ((), *informed_by(attack, (SMALL,)))
    )
    assert reading > plain + 8
    assert searching > plain + 3


def test_the_model_is_not_touched(model, victims):
    before = copy.deepcopy(model.state_dict())
    shared(model, victims, SMALL)
    assert all(torch.equal(t, before[n]) for n, t in model.state_dict().items())


def test_it_promises_nothing():
    assert Precode().guarantee() is None
