"""METHODS D3, G11: the scores are those of a slow loop, exactly so many columns go, and muting undoes it all."""

import copy

import pytest
import torch
from torch import nn

from leakgauge.attacks.cpl import CPL
from leakgauge.attacks.dlg import DLG
from leakgauge.attacks.gradinversion import GradInversion
from leakgauge.attacks.inverting_gradients import InvertingGradients
from leakgauge.attacks.random_guess import RandomGuess
from leakgauge.client.chain import chain, client_step
from leakgauge.client.observe import facts_about, observe
from leakgauge.data import draw_victims, load
from leakgauge.defenses.soteria import Soteria, kept_columns, scores, slope_norms
from leakgauge.errors import BadInput, NotApplicable
from leakgauge.models import load_model
from leakgauge.setup.plan import informed_by
from leakgauge.types import Client, Known, threat_model

SEEDS = (21, 22, 23)


@pytest.fixture(scope="module")
def model():
    return load_model("lenet-dlg:filters=4", load("digits").spec, seed=0)  # sigmoid: no feature is zero by itself


@pytest.fixture(scope="module")
def victims():
    return draw_victims(load("digits"), trials=3, batch_size=2, seed=0)


def shared(model, batch, *defenses, local=None):
    return chain(client_step(local or Client()), *defenses)(model, batch, SEEDS[: batch.trials])


@pytest.mark.parametrize("eps", [0, 0.1, 1e-10])
def test_scores_are_those_of_one_backward_pass_per_feature_and_sample(model, victims, eps):
    found = scores(model, "fc", victims.inputs, eps)
    for t in range(3):
        expected = torch.zeros(model.fc.in_features)
        for x in victims.inputs[t]:
            x = x[None].clone().requires_grad_()
            features = model[:-1](x)[0]
            for i, feature in enumerate(features):
                (slope,) = torch.autograd.grad(feature, x, retain_graph=True)
                expected[i] += slope.norm() / (feature.item() + eps)
        torch.testing.assert_close(found[t], expected, rtol=1e-4, atol=1e-6)


def test_parts_of_the_features_give_what_all_at_once_give(model, victims, monkeypatch):
    samples = victims.inputs.flatten(0, 1)
    whole = slope_norms(model, "fc", samples)
    monkeypatch.setattr("leakgauge.defenses.soteria._PASSES", 3)
    parts = slope_norms(model, "fc", samples)
    assert torch.equal(parts[0], whole[0])
    torch.testing.assert_close(parts[1], whole[1])


@pytest.mark.parametrize(("share", "muted"), [(0.01, 8), (0.6, 461), (0.8, 614), (1.0, 767), (0.0, 0)])
def test_as_many_of_768_features_go_as_lie_below_the_percentile(share, muted):
    g = torch.Generator().manual_seed(0)
    rows = torch.rand(3, 768, generator=g)
    kept = kept_columns(rows, share)
    assert ((~kept).sum(1) == muted).all()
    if 0 < share < 1:
        thresholds = torch.quantile(rows, share, dim=1, keepdim=True)
        assert torch.equal(kept, rows >= thresholds)


def test_ties_fall_by_position_and_the_count_stays_exact():
    rows = torch.tensor([[1.0, -1.0, 1.0, -1.0, 2.0], [3.0, 3.0, 3.0, 3.0, 3.0]])
    assert kept_columns(rows, 0.5).tolist() == [[False, False, True, True, True]] * 2


@pytest.mark.parametrize("local", [Client(), Client("fedavg", epochs=2)])
@pytest.mark.parametrize("share", [0.1, 0.6, 0.9])
def test_only_columns_of_the_last_weight_become_zero(model, victims, share, local):
    bare, muted = shared(model, victims, local=local), shared(model, victims, Soteria(share=share), local=local)
    columns = (muted.tensors["fc.weight"] == 0).all(1)
    kept = kept_columns(scores(model, "fc", victims.inputs, 0.1), share)
    assert torch.equal(columns, ~kept)
    for name, tensor in bare.tensors.items():
        expected = tensor * kept[:, None] if name == "fc.weight" else tensor
        assert torch.equal(muted.tensors[name], expected), name


def test_another_layer_can_be_defended(scene):
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.Sigmoid(), nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 10))
    batch = draw_victims(load("digits"), trials=2, batch_size=1, seed=0)
    bare, muted = shared(net, batch), shared(net, batch, Soteria(layer="3"))
    changed = [name for name, t in bare.tensors.items() if not torch.equal(muted.tensors[name], t)]
    assert changed == ["3.weight"]
    seen = scene(Soteria(layer="3"), model=net)
    plain, informed = (seen.posed(DLG(), *known) for known in ((), (Known(Soteria(layer="3"), "without the layer"),)))
    assert plain.observed.keys() - informed.observed.keys() == {"3.weight"}


def test_features_that_are_zero_count_as_zero_and_nothing_becomes_nan(victims):
    net = load_model("mlp:hidden=16", load("digits").spec, seed=0)  # ReLU
    found = scores(net, "fc2", victims.inputs, 0.0)
    assert torch.isfinite(found).all()
    assert (found == 0).any()


def test_the_model_is_not_touched(model, victims):
    before = copy.deepcopy(model.state_dict())
    shared(model, victims, Soteria())
    assert all(torch.equal(t, before[n]) for n, t in model.state_dict().items())
    assert not model.fc._forward_pre_hooks


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_outside_0_to_1_is_refused(share):
    with pytest.raises(BadInput, match="soteria: share must be at least 0 and at most 1"):
        Soteria(share=share)


def test_a_layer_that_is_not_there_is_refused_with_the_nearest(model, victims):
    with pytest.raises(BadInput, match="soteria: layer must be one of fc, last"):
        shared(model, victims, Soteria(layer="fcc"))


def test_models_that_do_not_fit_are_refused(model, victims):
    with pytest.raises(NotApplicable, match=r"nn\.Linear"):
        Soteria()._layer_in(nn.Conv2d(1, 2, 3))
    frozen = copy.deepcopy(model)
    frozen.fc.weight.requires_grad_(False)
    with pytest.raises(NotApplicable, match=r"fc\.weight.*frozen"):
        shared(frozen, victims, Soteria())


def test_the_attacker_who_knows_leaves_the_layer_out_or_matches_what_is_visible(scene, first_layer):
    assert Soteria().ways(DLG()) == ("without the layer", "visible columns")
    seen = scene(Soteria())
    plain = seen.posed(DLG())
    without, visible = (seen.posed(DLG(), Known(Soteria(), way)) for way in Soteria().ways(DLG()))
    assert plain.observed.keys() - without.observed.keys() == {"fc.weight"}
    assert (without.match_nonzero, visible.match_nonzero) == (False, True)
    assert visible.observed.keys() == plain.observed.keys()
    known = first_layer(Soteria())
    assert (known.combine, known.match_nonzero) == ("least-squares", True)
    assert Soteria().ways(RandomGuess()) == Soteria(share=0).ways(DLG()) == ()


@pytest.mark.parametrize("distance", ["l2", "cosine"])
def test_whatever_stands_in_a_tensor_that_is_left_out_changes_nothing(scene, distance):
    """Not in the distance, not in the norms of a cosine."""
    seen = scene(model="lenet-dlg:filters=3")
    whole = seen.matching(distance=distance)
    spoilt = whole.replace(observed={**whole.observed, "fc.weight": 9 + whole.observed["fc.weight"]})
    left, other = (Soteria().informs(problem, seen.seen, "without the layer") for problem in (whole, spoilt))
    z, rows = torch.rand(2, whole.width, generator=torch.Generator().manual_seed(0)), torch.arange(2)
    for clean, same in zip(left.evaluator(rows)(z), other.evaluator(rows)(z), strict=True):
        assert torch.equal(clean, same)
    assert not torch.equal(whole.evaluator(rows)(z)[0], left.evaluator(rows)(z)[0])


def test_a_model_without_such_a_layer_is_refused_for_the_attacker_too(scene):
    net = nn.Sequential(nn.Conv2d(1, 10, 8), nn.Flatten())
    with pytest.raises(NotApplicable, match="soteria needs a model with"):
        scene(model=net).matching(Known(Soteria(), "without the layer"))


def test_it_helps_gradinversion_too(scene):
    defense, attack = Soteria(share=0.9), GradInversion(steps=150, restarts=1, noise=0.0)
    seen = scene(defense, told="honest-but-curious+labels", dtype=torch.float64)
    plain, without = (seen.psnr(attack, k).mean() for k in ((), (Known(defense, "without the layer"),)))
    assert without > plain + 1


@pytest.mark.parametrize("attack", [CPL(steps=3), InvertingGradients(steps=5)], ids=lambda a: a.name)
def test_with_muting_the_defense_is_not_there_bit_for_bit(attack, model):
    """G11: the defended update without the tensor is the undefended one without it, and so is the attack."""
    batch, data = draw_victims(load("digits"), trials=2, batch_size=1, seed=0), load("digits").spec
    facts = facts_about(model, batch, data, Client(), None)
    told = threat_model("honest-but-curious")
    known = (Known(Soteria(), "without the layer"),)
    found = [
        attack(observe(model, shared(model, batch, *defenses), told, facts), SEEDS[:2], known=known)
        for defenses in ((), (Soteria(),))
    ]
    assert torch.equal(found[0].inputs, found[1].inputs)
    assert torch.equal(found[0].objective, found[1].objective)
    plain = attack(observe(model, shared(model, batch, Soteria()), told, facts), SEEDS[:2])
    assert not torch.equal(plain.inputs, found[0].inputs)


def test_both_ways_of_knowing_beat_the_plain_attack(attacked):
    attack = CPL(steps=8)
    plain, *informed = (
        attacked(Soteria(), attack, "lenet-cpl:filters=6", known) for known in ((), *informed_by(attack, (Soteria(),)))
    )
    for better in informed:
        assert better.median() > plain.median() + 8


def test_it_promises_nothing():
    assert Soteria().guarantee() is None
