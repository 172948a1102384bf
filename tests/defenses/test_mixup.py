"""Mixtures of two samples and their labels; the attacker who mixes its own guess finds the samples again."""

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
from leakgauge.defenses.mixup import Mixtures, Mixup, draw, mixed
from leakgauge.errors import BadInput
from leakgauge.metrics.scoring import score
from leakgauge.models import load_model
from leakgauge.types import Client, Known, threat_model

SEEDS = (20, 21, 22)


@pytest.fixture(scope="module")
def model():
    return load_model("lenet-dlg:filters=6", load("digits").spec, seed=0)


@pytest.fixture(scope="module")
def victims():
    return draw_victims(load("digits"), 3, 3, 3, "distinct")


def shared(model, batch, *defenses, local=None):
    return chain(client_step(local or Client()), *defenses)(model, batch, SEEDS)


def test_the_gradient_is_that_of_both_losses_on_the_mixtures(model, victims):
    """The usual way to write it: w CE(mixture, own label) + (1 - w) CE(mixture, the partner's)."""
    update = shared(model, victims, Mixup())
    weights, partners = draw(SEEDS, 3, 1.0)
    for t, (w, partner) in enumerate(zip(weights.float(), partners, strict=True)):
        inputs, labels = victims.inputs[t], victims.labels[t]
        logits = model(w * inputs + (1 - w) * inputs[partner])
        loss = w * nn.functional.cross_entropy(logits, labels)
        loss = loss + (1 - w) * nn.functional.cross_entropy(logits, labels[partner])
        for (name, _), expected in zip(
            model.named_parameters(), torch.autograd.grad(loss, list(model.parameters())), strict=True
        ):
            torch.testing.assert_close(update.tensors[name][t], expected, rtol=1e-4, atol=1e-6, msg=name)


def test_weights_are_beta_and_no_sample_is_its_own_partner():
    for alpha in (0.4, 1.0, 5.0):
        weights, partners = draw(range(4000), 4, alpha)
        assert abs(weights.mean() - 0.5) < 0.02
        assert abs(weights.var() - 1 / (4 * (2 * alpha + 1))) < 0.01
        assert (partners != torch.arange(4)).all()
        assert (partners.sort(1).values == torch.arange(4)).all()


def test_labels_keep_their_sum(victims):
    soft = mixed(victims, *draw(SEEDS, 3, 1.0), 10).labels
    torch.testing.assert_close(soft.sum(1), nn.functional.one_hot(victims.labels, 10).sum(1).float())


def test_draws_belong_to_their_seeds():
    together, alone = draw(SEEDS, 5, 1.0), draw(SEEDS[1:2], 5, 1.0)
    assert alone[0][0] == together[0][1]
    assert torch.equal(alone[1][0], together[1][1])


def test_local_training_runs_on_the_mixtures_too(model, victims):
    local = Client("fedavg", lr=0.1, epochs=2, batch_size=2)
    soft = mixed(victims, *draw(SEEDS, 3, 1.0), 10)
    expected = client_step(local)(model, soft, SEEDS)
    found = shared(model, victims, Mixup(), local=local)
    assert all(torch.equal(found.tensors[n], t) for n, t in expected.tensors.items())


def test_one_sample_has_no_partner(model):
    alone = draw_victims(load("digits"), trials=3, batch_size=1, seed=0)
    bare, defended = shared(model, alone), shared(model, alone, Mixup())
    assert all(torch.equal(defended.tensors[n], t) for n, t in bare.tensors.items())


def test_zero_is_the_identity_and_has_no_adaptive_attack(model, victims):
    bare, defended = shared(model, victims), shared(model, victims, Mixup(alpha=0))
    assert all(torch.equal(defended.tensors[n], t) for n, t in bare.tensors.items())
    assert Mixup(alpha=0).ways(DLG()) == ()


def test_a_negative_alpha_is_refused():
    with pytest.raises(BadInput, match="mixup: alpha must be at least 0"):
        Mixup(alpha=-1)


@pytest.mark.parametrize("attack", [DLG(), InvertingGradients(), GradInversion()], ids=lambda a: a.name)
def test_the_attacker_who_knows_mixes_its_own_guess(scene, attack):
    assert Mixup().ways(attack) == ("",)
    posed = scene(Mixup(), samples=3).posed(attack, Known(Mixup()))
    assert isinstance(posed.painter, Mixtures)
    assert posed.exact == 1e-10


@pytest.mark.parametrize(("threshold", "counts"), [(1e-8, 1e-10), (1e-11, 1e-11)])
def test_a_search_is_solved_only_where_no_other_weights_fit(scene, threshold, counts):
    attack = DLG(threshold=threshold)
    posed = scene(Mixup(), samples=3).posed(attack, Known(Mixup()))
    torch.testing.assert_close(attack._solved_below(posed)[0], counts * posed.size())


def test_a_first_layer_is_fitted_to_all_rows_and_a_floor_has_nothing_to_know(first_layer):
    assert first_layer(Mixup()).combine == "least-squares"
    assert Mixup().ways(RandomGuess()) == ()


def test_gradinversion_takes_mixtures_apart(scene):
    made = scene(Mixup(), samples=3, told="honest-but-curious+labels")
    found = GradInversion(steps=3, restarts=2)(made.seen, made.seeds, known=(Known(Mixup()),))
    assert found.inputs.shape == made.batch.inputs.shape
    assert torch.equal(found.labels, made.batch.labels)


@pytest.mark.parametrize("labels", ["infer", "optimise"])
def test_the_samples_come_back(model, victims, labels):
    attack = CPL(steps=30, threshold=1e-8, labels=labels)
    spec = load("digits").spec
    facts = facts_about(model, victims, spec, Client(), None)
    seen = observe(model, shared(model, victims, Mixup()), threat_model("honest-but-curious"), facts)
    plain, knowing = (
        score(victims, attack(seen, SEEDS, known=known), spec).records["psnr"].mean(1)
        for known in ((), (Known(Mixup()),))
    )
    assert knowing.median() > plain.median() + 10


def test_it_promises_nothing():
    assert Mixup().guarantee() is None
