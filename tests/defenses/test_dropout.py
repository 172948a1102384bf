"""METHODS D10: the client's mask is its own, keeps every name, and stands in the last layer's gradient."""

import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call

from leakgauge.attacks.dlg import DLG
from leakgauge.attacks.linear import Linear
from leakgauge.attacks.random_guess import RandomGuess
from leakgauge.client.chain import chain, client_step, prepared
from leakgauge.data import draw_victims, load
from leakgauge.defenses.dropout import Dropout, draw_masks, visible_masks
from leakgauge.defenses.gaussian import Gaussian
from leakgauge.errors import BadInput, NotApplicable
from leakgauge.models import load_model
from leakgauge.models.layers import MaskedLinear
from leakgauge.models.structure import first_linear, last_linear
from leakgauge.types import Batch, Client, Defense, Known, SharedUpdate

SEEDS = (21, 22, 23)
EXAMPLE = torch.full((1, 1, 8, 8), 0.5)
ONE_GRADIENT = Client()


@pytest.fixture(scope="module")
def model():
    return load_model("lenet-dlg:filters=4", load("digits").spec, seed=0)  # sigmoid: no feature is zero by itself


@pytest.fixture(scope="module")
def victims():
    return draw_victims(load("digits"), trials=3, batch_size=1, seed=0)


def shared(model: nn.Module, batch: Batch, *defenses: Defense, local: Client = ONE_GRADIENT) -> SharedUpdate:
    return chain(client_step(local), *defenses)(prepared(model, *defenses), batch, SEEDS)


def test_each_feature_is_dropped_with_probability_p_and_the_mask_is_one_on_average():
    for p in (0.1, 0.5, 0.9):
        masks = draw_masks(range(20), 5000, p)
        assert abs((masks == 0).float().mean() - p) < 0.01
        assert masks.unique().tolist() == pytest.approx([0, 1 / (1 - p)])
        assert abs(masks.mean() - 1) < 0.02 / (1 - p)


def test_masks_belong_to_their_seeds():
    together = draw_masks(SEEDS, 64, 0.5)
    assert torch.equal(draw_masks(SEEDS[1:2], 64, 0.5)[0], together[1])
    assert not torch.equal(together[0], together[1])


def test_the_prepared_model_keeps_names_parameters_and_outputs(model):
    before = copy.deepcopy(model)
    trained = Dropout().prepare(model)
    assert [n for n, _ in trained.named_parameters()] == [n for n, _ in model.named_parameters()]
    assert trained.state_dict().keys() == model.state_dict().keys()  # the mask is not saved
    assert all(torch.equal(t, model.state_dict()[n]) for n, t in trained.state_dict().items())
    assert torch.equal(trained(EXAMPLE), model(EXAMPLE))  # ones: an attacker who does not know the mask
    assert type(model.fc) is nn.Linear
    assert torch.equal(before(EXAMPLE), model(EXAMPLE))
    assert last_linear(trained, EXAMPLE) == "fc"
    assert not trained.training


def test_the_mask_survives_copies_and_can_be_replaced_for_one_call(model):
    trained = Dropout().prepare(model)
    mask = draw_masks((3,), trained.fc.in_features, 0.5)[0]
    once = functional_call(trained, {"fc.mask": mask}, (EXAMPLE,))
    trained.fc.mask = mask
    assert torch.equal(copy.deepcopy(trained)(EXAMPLE), once)
    assert not torch.equal(model(EXAMPLE), once)


def test_the_gradient_is_that_of_a_network_with_these_features_dropped(model, victims):
    """The slow way: autograd through the network with its features multiplied by hand."""
    update = shared(model, victims, Dropout())
    masks = draw_masks(SEEDS, model.fc.in_features, 0.5)
    for t in range(3):
        features = model[:-1](victims.inputs[t])
        loss = nn.functional.cross_entropy(model.fc(features * masks[t]), victims.labels[t])
        expected = torch.autograd.grad(loss, list(model.parameters()))
        for (name, _), gradient in zip(model.named_parameters(), expected, strict=True):
            torch.testing.assert_close(update.tensors[name][t], gradient, rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("local", [Client(), Client("fedavg", epochs=2)])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_zero_columns_of_the_last_layer_are_exactly_the_mask(model, samples, local, p):
    batch = draw_victims(load("digits"), trials=3, batch_size=samples, seed=1)
    defense = Dropout(p)
    update = shared(model, batch, defense, local=local)
    layer = prepared(model, defense).fc
    read = layer.visible_masks(update.tensors["fc.weight"])
    torch.testing.assert_close(read, draw_masks(SEEDS, layer.in_features, p), rtol=1e-6, atol=0)


def test_noise_covers_the_mask_and_then_ones_are_read(model, victims):
    defenses = (Dropout(), Gaussian(0.1))
    update = shared(model, victims, *defenses)
    assert (prepared(model, *defenses).fc.visible_masks(update.tensors["fc.weight"]) == 1).all()


def test_the_last_linear_layer_is_found_inside_and_alone():
    inner = nn.Sequential(nn.Linear(4, 6, bias=False), nn.Tanh())
    nested = nn.Sequential(inner, nn.Sequential(nn.Linear(6, 3, bias=False), nn.Identity()))
    trained = Dropout().prepare(nested)
    assert type(trained[0][0]) is nn.Linear
    assert isinstance(trained[1][0], MaskedLinear)
    assert trained[1][0].bias is None
    assert first_linear(trained, torch.rand(1, 4)) == "0.0"
    alone = Dropout().prepare(nn.Linear(4, 2))
    assert isinstance(alone, MaskedLinear)
    update = shared(nn.Linear(4, 2), Batch(torch.rand(3, 1, 4), torch.zeros(3, 1, dtype=torch.long)), Dropout())
    assert update.tensors.keys() == {"weight", "bias"}


def test_a_frozen_last_layer_stays_frozen(victims, model):
    frozen = copy.deepcopy(model)
    frozen.fc.weight.requires_grad_(False)
    assert "fc.weight" not in shared(frozen, victims, Dropout()).tensors


def test_a_model_without_a_linear_layer_is_refused():
    with pytest.raises(NotApplicable, match=r"nn\.Linear"):
        Dropout().prepare(nn.Conv2d(1, 2, 3))


def test_buffers_that_a_client_shares_stay_and_the_mask_is_not_among_them():
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.BatchNorm1d(6), nn.Linear(6, 10)).eval()
    batch = draw_victims(load("digits"), trials=3, batch_size=4, seed=0)
    update = shared(net, batch, Dropout(), local=Client("fedavg", batchnorm="train"))
    assert update.buffers["2.running_mean"].shape == (3, 6)
    assert not any("mask" in name for name in update.buffers)


def test_zero_is_the_identity_and_has_no_adaptive_attack(model, victims):
    off = Dropout(p=0)
    assert off.prepare(model) is model
    bare, defended = shared(model, victims), shared(model, victims, off)
    assert all(torch.equal(defended.tensors[n], t) for n, t in bare.tensors.items())
    assert off.ways(DLG()) == off.ways(Linear()) == ()


@pytest.mark.parametrize("p", [-0.1, 1, 1.5])
def test_a_probability_outside_0_to_below_1_is_refused(p):
    with pytest.raises(BadInput, match="dropout: p must be at least 0"):
        Dropout(p=p)


def test_the_attacker_who_knows_reads_the_mask(scene, first_layer):
    assert Dropout().ways(DLG()) == ("",)
    posed = scene(Dropout()).posed(DLG(), Known(Dropout()))
    assert posed.masks["fc.mask"].tolist() == visible_masks(posed.observation)["fc.mask"].tolist()
    known = first_layer(Dropout())
    assert (known.combine, known.match_nonzero) == ("least-squares", True)
    assert Dropout().ways(RandomGuess()) == ()


@pytest.mark.parametrize("p", [0.2, 0.5, 0.8])
def test_each_trials_own_mask_is_read_off_the_last_layer(scene, p):
    (name, read), *rest = visible_masks(scene(Dropout(p=p), seeds=SEEDS, dtype=torch.float64).seen).items()
    assert name == "fc.mask"
    assert rest == []
    assert torch.equal(read != 0, draw_masks(SEEDS, read.shape[1], p) != 0)


@pytest.mark.parametrize("p", [0.2, 0.5])
def test_with_the_mask_read_the_truth_answers_and_without_it_does_not(scene, p):
    made = scene(Dropout(p=p), seeds=SEEDS, samples=2, dtype=torch.float64)
    blind, reading = (
        problem.evaluator(torch.arange(3))(made.batch.inputs.flatten(1))[0]
        for problem in (made.matching(), made.matching(Known(Dropout(p=p))))
    )
    assert reading.max() < 1e-12
    assert blind.min() > 1e-3


def test_reading_a_mask_where_there_is_none_is_not_applicable(scene):
    with pytest.raises(NotApplicable, match="read off a model that has it before its last layer"):
        scene().matching(Known(Dropout()))


def test_reading_a_mask_off_a_frozen_layer_is_not_applicable(scene):
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Sigmoid(), nn.Linear(8, 10))
    net[3].weight.requires_grad_(False)
    with pytest.raises(NotApplicable, match="frozen"):
        scene(Dropout(), model=net).matching(Known(Dropout()))


def test_it_promises_nothing():
    assert Dropout().guarantee() is None
