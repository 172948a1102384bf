"""What attacks that descend in the inputs pose, and with which settings they descend."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from leakgauge.attacks.inverting_gradients import InputSearch, sign_for, smooth
from leakgauge.matching.priors import mean_variation
from leakgauge.types import Client, Fact


@dataclass(frozen=True)
class Search(InputSearch):
    name: ClassVar[str] = "search"
    summary: ClassVar[str] = "for these tests"
    paper: ClassVar[str] = "none"


def test_inputs_are_searched_in_standard_deviations_of_the_data(scene):
    seen = scene("lenet-dlg").seen
    problem = Search().posed(seen, "cosine", 0.1)
    data = seen.fact(Fact.INPUT_SPEC)
    inputs, _ = problem.split(torch.zeros(1, problem.width))
    assert float(inputs.mean()) == pytest.approx(data.mean[0])
    inputs, _ = problem.split(torch.ones(1, problem.width))
    assert float(inputs.mean()) == pytest.approx(data.mean[0] + data.std[0])


def test_total_variation_is_that_of_what_is_searched_and_ranks_nothing(scene):
    problem = Search().posed(scene("lenet-dlg").seen, "cosine", 0.1)
    z = torch.rand(1, problem.width, generator=torch.Generator().manual_seed(0)).to(problem.like)
    inputs, _ = problem.split(z)
    expected = 0.1 * mean_variation(z[:, : problem.pixels].reshape(inputs.shape))
    torch.testing.assert_close(smooth(problem, inputs, problem.labels), expected)
    value, _ = problem.evaluator(torch.zeros(1, dtype=torch.long))(z)
    torch.testing.assert_close(value, problem.replace(variation=0.0).values(torch.zeros(1, dtype=torch.long))(z))


@pytest.mark.parametrize(
    ("settings", "epochs", "batch_size", "lr"),
    [({}, 3, 1, 0.1), ({"assumed_steps": 5}, 5, 0, 0.1), ({"assumed_lr": 0.2}, 3, 1, 0.2)],
)
def test_local_steps_are_replayed_as_revealed_or_as_assumed(scene, settings, epochs, batch_size, lr):
    local = Client(kind="fedavg", epochs=3, batch_size=1, lr=0.1)
    unrolled = Search(**settings).posed(scene("lenet-dlg", local=local).seen, "cosine", 0.0).unrolled
    assert (unrolled.epochs, unrolled.batch_size, unrolled.lr) == (epochs, batch_size, lr)
    assert Search().posed(scene("lenet-dlg").seen, "cosine", 0.0).unrolled is None


@pytest.mark.parametrize("boxed", [True, False])
def test_boxed_descent_keeps_pixels_in_their_range(scene, boxed):
    attack = Search(steps=3, boxed=boxed)
    problem = attack.posed(scene("lenet-dlg").seen, "cosine", 0.0)
    far = torch.full((1, problem.width), 50.0).to(problem.like)
    found = attack.descending(problem, sign="hard")(problem.evaluator, far)
    inputs, _ = problem.split(found.x)
    assert bool((inputs <= 1 + 1e-5).all()) is boxed


def test_the_sign_is_softened_behind_kinks_only(scene):
    assert sign_for(scene("lenet-dlg").seen) == "none"
    assert sign_for(scene("lenet-dlg:activation=relu").seen) == "soft"
