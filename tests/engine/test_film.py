"""Points on the way: as many as asked for, the best so far, and where a row ended from then on."""

import pytest
import torch

from leakgauge.engine.descent import descend
from leakgauge.engine.driving import Film, frame_steps


@pytest.mark.parametrize(
    ("steps", "frames", "expected"),
    [(300, 8, (0, 1, 3, 7, 17, 45, 116, 300)), (300, 2, (0, 300)), (300, 1, (0,)), (300, 0, ()), (3, 8, (0, 1, 2, 3))],
)
def test_frames_lie_dense_at_the_beginning_and_end_with_the_last_step(steps, frames, expected):
    assert frame_steps(steps, frames) == expected


def test_frames_are_the_best_points_so_far_and_stay_where_a_row_ends():
    goal = torch.tensor([[1.0], [8.0]])

    def problem(rows):
        return lambda x: (((x - goal[rows]) ** 2).sum(1), 2 * (x - goal[rows]))

    start = torch.zeros(2, 1)
    found = descend(
        problem, start, steps=64, lr=0.5, rule="adam", decay="none", stop_below=1e-2, frames=frame_steps(64, 4)
    )
    assert found.film is not None
    assert found.film.shape == (2, 4, 1)
    assert torch.equal(found.film[:, 0], start)
    assert torch.equal(found.film[:, -1], found.x)
    distance = (found.film - goal[:, None]).abs()[..., 0]
    assert (distance.diff(dim=1) <= 0).all()
    assert found.steps[0] < found.steps[1] < 64
    assert torch.equal(found.film[0, -2], found.x[0]), "the first row ended before that frame"


def test_no_frames_cost_nothing():
    film = Film((), per_step=1)
    film.look(0, torch.zeros(2, 1))
    assert film.developed(torch.zeros(2, 1)) is None
