"""Inverting Gradients: the cost is zero at the truth and blind to scale; local steps are unrolled; the box holds."""

import dataclasses

import pytest
import torch

from leakgauge.attacks.inverting_gradients import InvertingGradients, choose_layers
from leakgauge.client.chain import client_step
from leakgauge.client.observe import facts_about, observe
from leakgauge.data import draw_victims, load
from leakgauge.matching.distance import gradient_distance
from leakgauge.matching.priors import mean_variation
from leakgauge.metrics.scoring import score
from leakgauge.models import load_model
from leakgauge.types import Client, threat_model


def scene(trials=2, samples=1, local=None, told="honest-but-curious", model="lenet-dlg"):
    local = local or Client()
    data = load("digits")
    batch = draw_victims(data, trials, samples, seed=3)
    net = load_model(model, data.spec, seed=0)
    update = client_step(local)(net, batch, range(trials))
    return data.spec, batch, observe(net, update, threat_model(told), facts_about(net, batch, data.spec, local, None))


def cost_at(observation, inputs, **fields):
    problem = InvertingGradients(tv=0.0, **fields).problem(observation, ())
    z = ((inputs - problem.centre) / problem.unit).flatten(1)
    return problem.evaluator(torch.arange(len(z)))(z)[0]


def test_the_cost_is_zero_at_the_truth():
    _, batch, seen = scene()
    assert cost_at(seen, batch.inputs).abs().max() < 1e-6


def test_the_cosine_does_not_see_the_scale_of_the_gradient():
    _, batch, seen = scene()
    other = batch.inputs.flip(0)
    scaled = dataclasses.replace(seen, update=seen.update.map(lambda _, t: 37 * t))
    torch.testing.assert_close(cost_at(scaled, other), cost_at(seen, other), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("local", [Client(kind="fedavg", lr=0.1), Client(kind="fedavg", lr=0.1, epochs=3)])
def test_unrolled_local_steps_cost_nothing_at_the_truth(local):
    _, batch, seen = scene(samples=2, local=local, told="honest-but-curious+labels")
    assert cost_at(seen, batch.inputs).abs().max() < 1e-5


def test_one_local_step_gives_the_same_cosine_as_the_gradient():
    told = "honest-but-curious+labels"
    _, batch, plain = scene(samples=2, told=told)
    _, _, moved = scene(samples=2, told=told, local=Client(kind="fedavg", lr=0.1))
    elsewhere = 1 - batch.inputs
    torch.testing.assert_close(cost_at(moved, elsewhere), cost_at(plain, elsewhere), rtol=1e-3, atol=1e-5)


TOLD = "honest-but-curious+labels"
THREE_STEPS = Client(kind="fedavg", lr=0.1, epochs=3)


def test_a_right_guess_of_steps_and_rate_is_as_good_as_being_told():
    _, batch, seen = scene(samples=2, local=THREE_STEPS, told=TOLD)
    elsewhere = 1 - batch.inputs
    for inputs in (batch.inputs, elsewhere):
        told, guessed = cost_at(seen, inputs), cost_at(seen, inputs, assumed_steps=3, assumed_lr=0.1)
        assert torch.equal(told, guessed)
    assert cost_at(seen, elsewhere).min() > 1e-3


@pytest.mark.parametrize(
    "guess", [{"assumed_steps": 1}, {"assumed_steps": 9}, {"assumed_lr": 1.0}, {"assumed_lr": 1e-3}]
)
def test_a_wrong_guess_costs_something_at_the_truth(guess):
    _, batch, seen = scene(samples=2, local=THREE_STEPS, told=TOLD)
    assert (cost_at(seen, batch.inputs, **guess) > 10 * cost_at(seen, batch.inputs).abs() + 1e-6).all()


def test_assumed_steps_are_on_all_samples_whatever_the_clients_mini_batches():
    """A client of one mini-batch of two is what one assumed step is; a client of two mini-batches of one is not."""
    one = Client(kind="fedavg", lr=0.1, batch_size=2)
    two = dataclasses.replace(one, batch_size=1)
    costs = []
    for local in (one, two):
        _, batch, seen = scene(samples=2, local=local, told=TOLD)
        costs.append(cost_at(seen, batch.inputs, assumed_steps=1).max())
    assert costs[0] < 1e-6
    assert costs[1] > 10 * costs[0]


def test_guesses_do_not_matter_for_a_single_gradient():
    _, batch, seen = scene()
    assert torch.equal(
        cost_at(seen, 1 - batch.inputs), cost_at(seen, 1 - batch.inputs, assumed_steps=4, assumed_lr=1.0)
    )


def test_the_box_projection_is_idempotent_and_ends_in_range():
    _, _, seen = scene()
    problem = InvertingGradients().problem(seen, ())
    z = 10 * torch.randn(2, problem.width)
    once = problem.boxed(z)
    assert torch.equal(problem.boxed(once), once)
    inputs = problem.split(once)[0]
    assert inputs.min() >= -1e-6
    assert inputs.max() <= 1 + 1e-6


def test_total_variation_of_a_constant_is_zero_and_of_a_checkerboard_two():
    board = ((torch.arange(8)[:, None] + torch.arange(8)) % 2).float().expand(1, 1, 1, 8, 8)
    assert mean_variation(torch.full((1, 1, 1, 8, 8), 0.3)).item() == 0
    assert mean_variation(board).item() == 2


def test_a_digit_is_recovered():
    data, batch, seen = scene()
    result = InvertingGradients(steps=200, tv=1e-6)(seen, (0, 1))
    scores = score(batch, result, data)
    assert scores.records["psnr"].mean() > 20
    assert scores.label_accuracy.tolist() == [1.0, 1.0]


def test_labels_of_a_batch_are_optimised_when_hidden():
    _, _, seen = scene(samples=2)
    result = InvertingGradients(steps=2)(seen, (0, 1))
    assert result.labels.shape == (2, 2)


def test_layers_are_chosen_in_the_models_order():
    tensors = {"a": torch.ones(1, 1), "b": 3 * torch.ones(1, 1), "c": 2 * torch.ones(1, 1)}
    assert choose_layers(tensors, "all", 1) == ["a", "b", "c"]
    assert choose_layers(tensors, "first", 2) == ["a", "b"]
    assert choose_layers(tensors, "last", 1) == ["c"]
    assert choose_layers(tensors, "largest", 2) == ["b", "c"]


def test_the_cosine_runs_over_all_tensors_together():
    mine = {"a": torch.tensor([[3.0, 0.0]]), "b": torch.tensor([[4.0]])}
    theirs = {"a": torch.tensor([[0.0, 1.0]]), "b": torch.tensor([[1.0]])}
    expected = 1 - 4 / (5 * 2**0.5)
    assert gradient_distance(mine, theirs, "cosine").item() == pytest.approx(expected, rel=1e-6)


def test_the_labels_of_a_batch_are_counted_unless_they_are_to_be_optimised():
    _, batch, seen = scene(samples=5, model="lenet-dlg:filters=3,init=default")
    assert torch.equal(InvertingGradients(steps=1)(seen, (0, 1)).labels, batch.labels.sort(1).values)
    assert InvertingGradients(labels="optimise").problem(seen, ()).labels is None
