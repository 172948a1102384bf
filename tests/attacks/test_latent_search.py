"""The cost of a latent: zero at the truth, with the defense or without, the same alone or among others."""

import dataclasses

import pytest
import torch

from leakgauge.attacks._latent_search import norms
from leakgauge.attacks.ggl import GGL
from leakgauge.attacks.gias import GeneratorWeights
from leakgauge.client.observe import observe
from leakgauge.errors import NotApplicable
from leakgauge.generators.loading import load_generator
from leakgauge.matching.problem import innermost
from leakgauge.types import Batch, Fact, threat_model

SETTINGS = {"transform": "none", "kl": 0.0}


@pytest.fixture
def drawn(scene):
    """drawn(model): victims from the generator's own range, their latents, and what is seen of them."""

    def make(model="lenet-dlg:filters=4", trials=2):
        from leakgauge.client.fedsgd import fedsgd

        base = scene(model, trials=trials)
        public = base.seen.fact(Fact.PUBLIC_DATA)
        generator = load_generator("public", base.data, public)
        z = 0.5 * torch.randn(trials, generator.latent, generator=torch.Generator().manual_seed(4))
        latents = 2.5 * torch.tanh(z / 2.5)
        batch = Batch(generator.samples(latents[:, None], base.batch.labels), base.batch.labels)
        update = fedsgd()(base.seen.model, batch, range(trials))
        return z, batch, observe(base.seen.model, update, threat_model("honest-but-curious"), dict(base.seen.revealed))

    return make


def problem_for(seen, **changes):
    return GGL(**SETTINGS | changes).problem(seen, tuple(range(seen.trials)))


@pytest.mark.parametrize("distance", ["l2", "l1", "cosine"])
def test_the_true_latent_costs_nothing_and_another_one_something(drawn, distance):
    z, batch, seen = drawn()
    problem = problem_for(seen, distance=distance)
    assert torch.equal(problem.labels, batch.labels)
    value = problem.values(torch.arange(2))
    assert value(z).abs().max() < 1e-6
    assert (value(z.flip(1)) > 100 * value(z).abs() + 1e-6).all()


def test_the_cost_is_the_mean_over_tensors_of_the_squared_distance(drawn):
    z, _, seen = drawn()
    problem = problem_for(seen)
    other = problem.split(torch.zeros_like(z))[0]
    from leakgauge.client.fedsgd import fedsgd

    theirs = fedsgd()(seen.model, Batch(other, problem.labels), range(2)).tensors
    by_hand = [sum((theirs[n][t] - g[t]).square().sum() for n, g in seen.update.tensors.items()) for t in range(2)]
    torch.testing.assert_close(problem.values(torch.arange(2))(torch.zeros_like(z)), torch.stack(by_hand) / len(theirs))


def test_values_with_and_without_slopes_agree_and_the_slope_is_right(drawn):
    z, _, seen = drawn()
    seen = dataclasses.replace(seen, model=seen.model.double(), update=seen.update.map(lambda _, t: t.double()))
    problem = problem_for(seen)
    rows, start = torch.arange(2), 0.3 * torch.ones_like(z, dtype=torch.float64)
    value, slope = problem.evaluator(rows)(start)
    torch.testing.assert_close(value, problem.values(rows)(start))
    step = torch.zeros_like(start)
    step[:, 3] = 1e-5
    difference = (problem.values(rows)(start + step) - problem.values(rows)(start - step)) / 2e-5
    torch.testing.assert_close(slope[:, 3], difference, rtol=1e-4, atol=1e-9)


def test_the_pull_is_the_divergence_from_the_normal(drawn):
    _, _, seen = drawn()
    problem = problem_for(seen, reach=0.0, kl=0.1)
    even = torch.tensor([[1.0, -1.0], [2.0, 2.0]])  # mean 0, variance 1; mean 2, variance 0
    pull = problem.pull(even)
    assert pull[0] == pytest.approx(0.0, abs=1e-6)
    assert pull[1] > 0.5
    z = torch.randn(2, problem.width)
    free = problem_for(seen, reach=0.0)
    rows = torch.arange(2)
    torch.testing.assert_close(problem.values(rows)(z), free.values(rows)(z) + problem.pull(z))
    assert torch.equal(free.source.latents(z)[:, 0], z)


def test_latents_stay_within_reach_and_small_ones_as_they_are(drawn):
    problem = problem_for(drawn()[2])
    assert problem.source.latents(torch.full((1, problem.width), 99.0)).max() <= 2.5
    small = torch.full((1, problem.width), 0.01)
    torch.testing.assert_close(problem.source.latents(small)[:, 0], small, rtol=1e-4, atol=0)


def test_own_weights_begin_as_the_generators(drawn):
    z, _, seen = drawn()
    problem, rows = problem_for(seen), torch.arange(2)
    own = GeneratorWeights(problem.source.generator, problem.labels, problem.source.latents(z))
    torch.testing.assert_close(own(own.start, None)[0], problem.split(z)[0], rtol=1e-4, atol=1e-5)
    grey = dataclasses.replace(own, latents=problem.source.latents(torch.zeros_like(z)))
    value, slope = innermost(problem, lambda inside: inside.replace(painter=grey)).evaluator(rows)(grey.start)
    torch.testing.assert_close(value, problem.values(rows)(torch.zeros_like(z)), rtol=1e-4, atol=1e-7)
    assert (slope != 0).any(1).all()


def test_wide_networks_run_one_victim_at_a_time_and_give_the_same(drawn, monkeypatch):
    z, _, seen = drawn()
    problem, rows = problem_for(seen), torch.arange(2)
    usual = problem.evaluator(rows)(0 * z)
    monkeypatch.setattr("leakgauge.matching.problem.runs_one_by_one", lambda _: True)
    alone = problem.evaluator(rows)(0 * z)
    for first, second in zip(alone, usual, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-6)


def test_several_samples_need_their_labels(scene):
    with pytest.raises(NotApplicable, match=r"ggl reads the label of a single sample.*\+labels"):
        problem_for(scene(samples=2).seen)
    told = scene(samples=2, told="honest-but-curious+labels")
    problem = problem_for(told.seen)
    assert torch.equal(problem.labels, told.batch.labels)
    assert problem.split(torch.zeros(2, problem.width))[0].shape == (2, 2, 1, 8, 8)


def test_an_update_shorter_than_any_usual_one_is_taken_as_clipped(scene):
    plain = scene("lenet-dlg:filters=4").seen
    short = dataclasses.replace(plain, update=plain.update.map(lambda _, t: 1e-3 * t))
    for seen, shortened in ((plain, False), (short, True)):
        problem = problem_for(seen, transform="auto")
        (sent,) = problem.transforms
        long = {name: 10 * t for name, t in plain.update.tensors.items()}
        assert (norms(sent(long, problem.observed, torch.arange(2))) < norms(long)).all() == shortened
