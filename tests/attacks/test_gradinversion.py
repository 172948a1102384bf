"""METHODS A12: zero at the true batch, plain matching without the priors, distinct labels read, seeds that agree."""

import dataclasses

import pytest
import torch
from torch import nn

from leakgauge.attacks.gradinversion import GradInversion
from leakgauge.client.chain import client_step
from leakgauge.client.observe import facts_about, observe
from leakgauge.data import draw_victims, load
from leakgauge.engine.gradients import trial_gradients, working_model
from leakgauge.matching.distance import gradient_distance
from leakgauge.models import load_model
from leakgauge.types import Client, Fact, threat_model

TOLD = "honest-but-curious+batchnorm"
BARE = {"tv": 0.0, "l2": 0.0, "batchnorm": 0.0, "averages": 0.0, "group": 0.0, "noise": 0.0}


def normed():
    """A small network with BatchNorm for digits."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Conv2d(4, 6, 3, 2, padding=1),
            nn.BatchNorm2d(6),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(96, 10),
        ).eval()


def objective(attack, observation, inputs):
    """The attack's own objective (T,) at these inputs (T, N, *shape), one seed per trial."""
    problem = attack.problem(observation, ())
    z = ((inputs - problem.centre) / problem.unit).flatten(1)
    rows = attack.restarts * torch.arange(len(z))
    return attack._grouped(problem, attack.restarts)(rows)(z)[0]


@pytest.mark.parametrize("local", [Client(), Client(batchnorm="train")])
def test_gradient_and_statistics_cost_nothing_at_the_true_batch(scene, local):
    made = scene(normed(), samples=3, local=local, told=TOLD + "+labels")
    attack = GradInversion(tv=0.0, l2=0.0)
    assert objective(attack, made.seen, made.batch.inputs).max() < 1e-5
    assert objective(attack, made.seen, 1 - made.batch.inputs).min() > 1e-2


def test_every_trial_is_held_to_its_own_statistics(scene):
    made = scene(normed(), trials=2, told=TOLD)
    attack = GradInversion(tv=0.0, l2=0.0, restarts=3)
    problem = attack.problem(made.seen, ())
    truth = ((made.batch.inputs - problem.centre) / problem.unit).flatten(1)
    rows = torch.tensor([0, 2, 3])  # of trials 0, 0 and 1
    values, _ = attack._grouped(problem, attack.restarts)(rows)(truth[[0, 0, 1]])
    assert values.max() < 1e-5
    values, _ = attack._grouped(problem, attack.restarts)(rows)(truth[[1, 1, 0]])
    assert values.min() > 1e-2


def test_without_its_priors_it_is_plain_matching(scene):
    made = scene(normed(), trials=2)
    elsewhere = 1 - made.batch.inputs
    mine = trial_gradients(working_model(made.seen.model, "eval"), elsewhere, made.batch.labels)
    nothing = {n: torch.zeros_like(g) for n, g in mine.items()}
    observed = made.seen.update.tensors
    expected = (gradient_distance(mine, observed, "l2") / gradient_distance(nothing, observed, "l2")).detach()
    torch.testing.assert_close(objective(GradInversion(**BARE), made.seen, elsewhere), expected)


def test_every_prior_adds_its_weight_times_its_size(scene):
    made = scene(normed(), trials=2, told=TOLD)
    elsewhere = 1 - made.batch.inputs
    plain = objective(GradInversion(**BARE), made.seen, elsewhere)
    for name in ("tv", "l2", "batchnorm"):
        once = objective(GradInversion(**{**BARE, name: 0.1}), made.seen, elsewhere) - plain
        twice = objective(GradInversion(**{**BARE, name: 0.2}), made.seen, elsewhere) - plain
        assert (once > 1e-3).all()
        torch.testing.assert_close(twice, 2 * once, rtol=1e-3, atol=1e-5)


def test_statistics_come_from_the_victim_then_from_the_model_then_from_nowhere(scene):
    net = normed()
    assert GradInversion()._statistics(scene(net).seen)[0] == {}  # the layers never saw a batch
    net[1].num_batches_tracked += 1
    averages, weight = GradInversion(averages=0.3)._statistics(scene(net).seen)
    assert list(averages) == ["1"]
    assert averages["1"][0].shape == (4,)
    assert weight == 0.3
    revealed, weight = GradInversion(batchnorm=0.7)._statistics(scene(net, told=TOLD).seen)
    assert revealed["4"][0].shape == (2, 6)
    assert weight == 0.7
    assert GradInversion(batchnorm=0)._statistics(scene(net, told=TOLD).seen)[0] == {}
    assert GradInversion(averages=0)._statistics(scene(net).seen)[0] == {}


def test_averages_of_a_model_are_used_where_it_has_any(scene):
    net = normed()
    for layer in (net[1], net[4]):
        layer.num_batches_tracked += 1
    made = scene(net)
    with_them, without = (objective(GradInversion(averages=a), made.seen, 1 - made.batch.inputs) for a in (0.1, 0.0))
    assert (with_them > without + 1e-3).all()


@pytest.mark.parametrize("samples", [1, 2, 4, 8])
def test_distinct_labels_are_read_exactly(samples):
    data = load("digits")
    net = load_model("lenet-dlg:filters=4,activation=relu,init=default", data.spec, seed=0)
    batch = draw_victims(data, 5, samples, 0, "distinct")
    update = client_step(Client())(net, batch, range(5))
    seen = observe(net, update, threat_model("eavesdropper"), facts_about(net, batch, data.spec, Client(), None))
    labels = GradInversion().problem(seen, ()).labels
    assert torch.equal(labels.sort(1).values, batch.labels.sort(1).values)


def test_told_labels_are_used(scene):
    made = scene(normed(), samples=3, told="honest-but-curious+labels")
    assert torch.equal(GradInversion().problem(made.seen, ()).labels, made.batch.labels)


def test_pixels_stay_in_range_and_may_leave_it_if_told(scene):
    made = scene(normed(), told=TOLD)
    inside = GradInversion(steps=5, restarts=2)(made.seen, (0, 1)).inputs
    assert inside.min() >= -1e-6
    assert inside.max() <= 1 + 1e-6
    assert GradInversion(steps=5, restarts=2, boxed=False)(made.seen, (0, 1)).inputs.min() < -0.1


@pytest.mark.parametrize("samples", [1, 2])
def test_a_trial_does_not_depend_on_its_neighbours(scene, samples):
    """Noise, statistics and consensus included."""
    made = scene(normed(), trials=3, samples=samples, told=TOLD)
    attack = GradInversion(steps=12, restarts=3, noise=0.2, group=0.1)
    together = attack(made.seen, (7, 8, 9))
    alone = attack(made.seen.take([1]), (8,))
    torch.testing.assert_close(alone.inputs[0], together.inputs[1], rtol=1e-3, atol=1e-3)
    assert together.steps.tolist() == [36] * 3


def test_one_after_another_is_the_same_as_side_by_side(scene, monkeypatch):
    made = scene(normed(), samples=2, told=TOLD)
    attack = GradInversion(steps=4, restarts=2)
    side_by_side = attack(made.seen, (0, 1))
    monkeypatch.setattr("leakgauge.attacks.gradinversion.runs_one_by_one", lambda _: True)
    torch.testing.assert_close(attack(made.seen, (0, 1)).inputs, side_by_side.inputs, rtol=1e-3, atol=1e-3)


def test_a_digit_is_recovered_with_and_without_statistics(scene):
    made = scene(normed(), trials=2, told=TOLD)
    blind = dataclasses.replace(
        made.seen, revealed={f: v for f, v in made.seen.revealed.items() if f is not Fact.BATCHNORM_STATISTICS}
    )
    for seen in (made.seen, blind):
        assert (made.psnr(GradInversion(steps=200, restarts=2)(seen, (0, 1))) > 15).all()


def test_tables_can_be_attacked(scene):
    made = scene("mlp:hidden=16", data="breast-cancer", samples=2)
    assert GradInversion(steps=3, restarts=2)(made.seen, (0, 1)).inputs.shape == made.batch.inputs.shape


def test_time_ends_it(scene):
    made = scene(normed())
    result = GradInversion(steps=100_000, restarts=2, time_budget=1.0)(made.seen, (0, 1))
    assert result.seconds < 10
    assert torch.isfinite(result.inputs).all()
