"""The cost of a latent: zero at the truth, with the defence or without, the same alone or among others."""

import dataclasses

import pytest
import torch

from leakgauge.attacks._latent_search import latent_puzzle
from leakgauge.client.observe import observe
from leakgauge.errors import NotApplicable
from leakgauge.generators.loading import load_generator
from leakgauge.types import Batch, Fact, threat_model

SETTINGS = {"attack": "ggl", "generator": "public", "distance": "l2", "transform": "none", "reach": 2.5, "kl": 0.0}


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


def puzzle_for(seen, **changes):
    return latent_puzzle(seen, tuple(range(seen.trials)), **SETTINGS | changes)


@pytest.mark.parametrize("distance", ["l2", "l1", "cosine"])
def test_the_true_latent_costs_nothing_and_another_one_something(drawn, distance):
    z, batch, seen = drawn()
    puzzle = puzzle_for(seen, distance=distance)
    assert torch.equal(puzzle.labels, batch.labels)
    value = puzzle.values(torch.arange(2))
    assert value(z).abs().max() < 1e-6
    assert (value(z.flip(1)) > 100 * value(z).abs() + 1e-6).all()


def test_the_cost_is_the_mean_over_tensors_of_the_squared_distance(drawn):
    z, _, seen = drawn()
    puzzle = puzzle_for(seen)
    other = puzzle.samples(torch.zeros_like(z), torch.arange(2))
    from leakgauge.client.fedsgd import fedsgd

    theirs = fedsgd()(seen.model, Batch(other, puzzle.labels), range(2)).tensors
    by_hand = [sum((theirs[n][t] - g[t]).square().sum() for n, g in seen.update.tensors.items()) for t in range(2)]
    torch.testing.assert_close(puzzle.values(torch.arange(2))(torch.zeros_like(z)), torch.stack(by_hand) / len(theirs))


def test_values_with_and_without_slopes_agree_and_the_slope_is_right(drawn):
    z, _, seen = drawn()
    seen = dataclasses.replace(seen, model=seen.model.double(), update=seen.update.map(lambda _, t: t.double()))
    puzzle = puzzle_for(seen)
    rows, start = torch.arange(2), 0.3 * torch.ones_like(z, dtype=torch.float64)
    value, slope = puzzle.problem(1)(rows)(start)
    torch.testing.assert_close(value, puzzle.values(rows)(start))
    step = torch.zeros_like(start)
    step[:, 3] = 1e-5
    difference = (puzzle.values(rows)(start + step) - puzzle.values(rows)(start - step)) / 2e-5
    torch.testing.assert_close(slope[:, 3], difference, rtol=1e-4, atol=1e-9)


def test_the_pull_is_the_divergence_from_the_normal(drawn):
    _, _, seen = drawn()
    puzzle = puzzle_for(seen, reach=0.0, kl=0.1)
    even = torch.tensor([[1.0, -1.0], [2.0, 2.0]])  # mean 0, variance 1; mean 2, variance 0
    pull = puzzle.pull(even)
    assert pull[0] == pytest.approx(0.0, abs=1e-6)
    assert pull[1] > 0.5
    z = torch.randn(2, puzzle.width)
    free = puzzle_for(seen, reach=0.0)
    rows = torch.arange(2)
    torch.testing.assert_close(puzzle.values(rows)(z), free.values(rows)(z) + puzzle.pull(z))
    assert torch.equal(free.latents(z)[:, 0], z)


def test_latents_stay_within_reach_and_small_ones_as_they_are(drawn):
    puzzle = puzzle_for(drawn()[2])
    assert puzzle.latents(torch.full((1, puzzle.width), 99.0)).max() <= 2.5
    small = torch.full((1, puzzle.width), 0.01)
    torch.testing.assert_close(puzzle.latents(small)[:, 0], small, rtol=1e-4, atol=0)


def test_own_weights_begin_as_the_generators(drawn):
    z, _, seen = drawn()
    puzzle, rows = puzzle_for(seen), torch.arange(2)
    same = puzzle.own_samples(puzzle.weights(), puzzle.latents(z), rows)
    torch.testing.assert_close(same, puzzle.samples(z, rows), rtol=1e-4, atol=1e-5)
    value, slope = puzzle.weights_problem(puzzle.latents(torch.zeros_like(z)))(rows)(puzzle.weights())
    torch.testing.assert_close(value, puzzle.values(rows)(torch.zeros_like(z)), rtol=1e-4, atol=1e-7)
    assert (slope != 0).any(1).all()


def test_wide_networks_run_one_victim_at_a_time_and_give_the_same(drawn, monkeypatch):
    z, _, seen = drawn()
    puzzle, rows = puzzle_for(seen), torch.arange(2)
    usual = puzzle.problem(1)(rows)(0 * z)
    monkeypatch.setattr("leakgauge.attacks._latent_search.runs_one_by_one", lambda _: True)
    alone = puzzle.problem(1)(rows)(0 * z)
    for first, second in zip(alone, usual, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-6)


def test_several_samples_need_their_labels(scene):
    with pytest.raises(NotApplicable, match=r"ggl reads the label of a single sample.*\+labels"):
        puzzle_for(scene(samples=2).seen)
    told = scene(samples=2, told="honest-but-curious+labels")
    puzzle = puzzle_for(told.seen)
    assert torch.equal(puzzle.labels, told.batch.labels)
    assert puzzle.samples(torch.zeros(2, puzzle.width), torch.arange(2)).shape == (2, 2, 1, 8, 8)


def test_an_update_shorter_than_any_usual_one_is_taken_as_clipped(scene):
    plain = scene("lenet-dlg:filters=4").seen
    assert puzzle_for(plain, transform="auto").defense.bound is None
    short = dataclasses.replace(plain, update=plain.update.map(lambda _, t: 1e-3 * t))
    assert torch.isfinite(puzzle_for(short, transform="auto").defense.bound).all()
