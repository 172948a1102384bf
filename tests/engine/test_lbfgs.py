"""Batched L-BFGS against torch.optim.LBFGS run on each problem alone, and what keeps its trials apart."""

import math

import pytest
import torch
from torch import Tensor

from leakgauge.engine.lbfgs import INNER, minimise
from leakgauge.engine.line_search import RULES


class Problems:
    """T objectives with their gradients; counts how many points of which trial were evaluated."""

    def __init__(self, value, trials: int):
        self.value, self.counts = value, torch.zeros(trials, dtype=torch.long)

    def __call__(self, rows: Tensor):
        def evaluate(x: Tensor) -> tuple[Tensor, Tensor]:
            self.counts[rows] += 1
            x = x.detach().requires_grad_()
            value = self.value(x, rows)
            (slope,) = torch.autograd.grad(value.sum(), x)
            return value.detach(), slope

        return evaluate


def bowls(trials: int, width: int, quartic: float, seed: int = 0):
    """Random convex quadratics, with a quartic on top where `quartic` is above 0."""
    g = torch.Generator().manual_seed(seed)
    root = torch.randn(trials, width, width, generator=g, dtype=torch.float64)
    matrix = root @ root.transpose(1, 2) / width + 0.1 * torch.eye(width, dtype=torch.float64)
    centre = torch.randn(trials, width, generator=g, dtype=torch.float64)

    def value(x: Tensor, rows: Tensor) -> Tensor:
        d = x - centre[rows]
        return 0.5 * torch.einsum("ti,tij,tj->t", d, matrix[rows], d) + quartic * (d**4).sum(1)

    start = torch.randn(trials, width, generator=g, dtype=torch.float64)
    return value, start


def rosenbrock(x: Tensor, rows: Tensor) -> Tensor:
    return (100 * (x[:, 1:] - x[:, :-1] ** 2) ** 2 + (1 - x[:, :-1]) ** 2).sum(1)


def rosenbrock_starts(trials: int, width: int = 4) -> Tensor:
    g = torch.Generator().manual_seed(3)
    return 1 + 0.2 * torch.randn(trials, width, generator=g, dtype=torch.float64)


def alone_with_torch(value, start: Tensor, steps: int, history: int) -> Tensor:
    """Best value seen by torch.optim.LBFGS on each trial, one after the other."""
    best = []
    for t in range(len(start)):
        x = start[t].clone().requires_grad_()
        optimiser = torch.optim.LBFGS(
            [x], lr=1, max_iter=20, max_eval=10**9, history_size=history, tolerance_grad=0, tolerance_change=0
        )
        seen = []

        def closure(t=t, x=x, optimiser=optimiser, seen=seen):
            optimiser.zero_grad()
            loss = value(x[None], torch.tensor([t]))[0]
            loss.backward()
            seen.append(loss.item())
            return loss

        for _ in range(steps):
            optimiser.step(closure)
        seen.append(value(x[None].detach(), torch.tensor([t])).item())
        best.append(min(v for v in seen if math.isfinite(v)))
    return torch.tensor(best, dtype=torch.float64)


@pytest.mark.parametrize(("steps", "history"), [(1, 100), (2, 3), (4, 10)])
@pytest.mark.parametrize("quartic", [0.0, 0.05])
def test_fixed_steps_follow_torch_on_convex_problems(steps, history, quartic):
    value, start = bowls(3, 12, quartic)
    ours = minimise(Problems(value, 3), start, steps=steps, history=history, tolerance=0.0)
    theirs = alone_with_torch(value, start, steps, history)
    torch.testing.assert_close(ours.value, theirs, rtol=1e-8, atol=1e-12)
    assert (ours.value < value(start, torch.arange(3))).all()


@pytest.mark.parametrize("steps", [1, 2])
def test_fixed_steps_follow_torch_on_rosenbrock(steps):
    start = rosenbrock_starts(5)
    ours = minimise(Problems(rosenbrock, 5), start, steps=steps, history=7, tolerance=0.0)
    theirs = alone_with_torch(rosenbrock, start, steps, 7)
    torch.testing.assert_close(ours.value, theirs, rtol=1e-6, atol=1e-8)


def test_fixed_steps_follow_torch_where_the_first_curvature_is_negative():
    """On top of a cosine the first pair is refused: torch then takes a full step down the gradient."""

    def waves(x: Tensor, rows: Tensor) -> Tensor:
        return torch.cos(2 * x).sum(1) + 0.05 * (x**2).sum(1)

    start = 0.1 + 0.3 * torch.rand(8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    ours = minimise(Problems(waves, 8), start, steps=1, history=5, tolerance=0.0)
    torch.testing.assert_close(ours.value, alone_with_torch(waves, start, 1, 5), rtol=1e-6, atol=1e-8)


def test_a_history_shorter_than_the_run_wraps_and_still_matters():
    """The ring overwrites its oldest pair: it follows torch's short history and differs from a long one."""
    value, start = bowls(4, 30, 0.05, seed=5)
    short = minimise(Problems(value, 4), start, steps=2, history=2, tolerance=0.0)
    long = minimise(Problems(value, 4), start, steps=2, history=100, tolerance=0.0)
    torch.testing.assert_close(short.value, alone_with_torch(value, start, 2, 2), rtol=1e-8, atol=1e-12)
    assert (short.value > 10 * long.value).all()


@pytest.mark.parametrize("line_search", RULES)
def test_trials_together_equal_each_alone(line_search):
    value, start = bowls(5, 10, 0.2)
    together = minimise(Problems(value, 5), start, steps=2, line_search=line_search, history=5)
    for t in range(5):
        alone = minimise(
            lambda rows, t=t: Problems(value, 5)(rows + t),
            start[t : t + 1],
            steps=2,
            line_search=line_search,
            history=5,
        )
        torch.testing.assert_close(alone.x[0], together.x[t], rtol=1e-7, atol=1e-9)
        torch.testing.assert_close(alone.value[0], together.value[t], rtol=1e-7, atol=1e-12)
        assert alone.evaluations[0] == together.evaluations[t]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("line_search", RULES)
def test_a_trial_that_diverges_does_not_disturb_its_neighbours(bad, line_search):
    value, start = bowls(3, 8, 0.1)
    calls = []

    def spoilt(x: Tensor, rows: Tensor) -> Tensor:
        calls.append(len(rows))
        sick = torch.where(rows == 1, bad, 1.0) if len(calls) > 4 else torch.ones(len(rows))
        return value(x, rows) * sick

    with_sick = minimise(Problems(spoilt, 3), start, steps=4, history=2, line_search=line_search, tolerance=0.0)
    healthy = minimise(Problems(value, 3), start, steps=4, history=2, line_search=line_search, tolerance=0.0)
    for t in (0, 2):
        torch.testing.assert_close(with_sick.x[t], healthy.x[t], rtol=1e-7, atol=1e-9)
    assert torch.isfinite(with_sick.value).all()  # the best point before it went wrong is kept
    assert torch.isfinite(with_sick.x).all()
    assert with_sick.value[1] > healthy.value[1]
    assert min(calls) < 3  # the lost trial is no longer evaluated


@pytest.mark.parametrize("line_search", RULES)
def test_a_trial_that_never_has_a_value_stays_at_its_start_and_says_so(line_search):
    def nowhere(x: Tensor, rows: Tensor) -> Tensor:
        return x.sum(1) * math.nan

    start = torch.ones(1, 3)
    found = minimise(Problems(nowhere, 1), start, steps=5, line_search=line_search)
    assert found.value.item() == math.inf
    assert torch.equal(found.x, start)
    assert found.evaluations.item() <= 2 * INNER + 1


@pytest.mark.parametrize("line_search", ["armijo", "wolfe"])
def test_a_line_search_converges_on_rosenbrock_from_far_away(line_search):
    start = torch.tensor([[-1.2, 1.0], [3.0, -4.0], [0.0, 5.0]], dtype=torch.float64)
    found = minimise(Problems(rosenbrock, 3), start, steps=20, line_search=line_search, stop_below=1e-16)
    torch.testing.assert_close(found.x, torch.ones(3, 2, dtype=torch.float64), rtol=1e-5, atol=1e-5)


def test_armijo_ends_below_its_start_where_full_steps_blow_up():
    g = torch.Generator().manual_seed(1)
    start = 3 * torch.randn(8, 6, generator=g, dtype=torch.float64)

    def steep(x: Tensor, rows: Tensor) -> Tensor:
        return (x**2 + torch.exp(2 * x)).sum(1) + 5 * torch.cos(3 * x).sum(1)

    begun = steep(start, torch.arange(8))
    for steps in (1, 3):
        found = minimise(Problems(steep, 8), start, steps=steps, line_search="armijo")
        assert (found.value < begun).all()
        torch.testing.assert_close(found.value, steep(found.x, torch.arange(8)))


def test_stop_below_ends_a_trial_and_its_evaluations():
    value, start = bowls(3, 8, 0.0)
    start = start.clone()
    problems = Problems(value, 3)
    full = minimise(Problems(value, 3), start, steps=10, tolerance=0.0)
    limit = float(full.value.max()) * 1e6 + 1e-6
    found = minimise(problems, start, steps=10, stop_below=limit, tolerance=0.0)
    assert (found.value < limit).all()
    assert (found.evaluations < full.evaluations).all()
    assert torch.equal(found.evaluations, problems.counts)  # what it says it spent is what it spent


def test_each_row_may_have_a_goal_of_its_own_and_must_fall_to_a_share_of_its_start():
    value, start = bowls(3, 8, 0.0)
    begun = value(start, torch.arange(3))
    goals = torch.tensor([math.inf, math.inf, 1e-12], dtype=torch.float64)
    shares = torch.tensor([math.inf, 1e-3, math.inf], dtype=torch.float64)
    found = minimise(Problems(value, 3), start, steps=10, stop_below=goals, stop_share=shares, tolerance=0.0)
    assert found.evaluations[0] == 1  # where it began is good enough
    assert 1 < found.evaluations[1] <= found.evaluations[2]
    assert found.value[1] < 1e-3 * begun[1]
    assert found.value[2] < 1e-12


@pytest.mark.parametrize("line_search", ["armijo", "wolfe"])
def test_an_objective_that_begins_very_small_is_minimised_as_one_that_begins_at_1(line_search):
    """An update that hardly depends on its inputs begins at 1e-9: neither slopes nor curvatures are nothing there."""
    start = rosenbrock_starts(4)
    begun = rosenbrock(start, torch.arange(4))

    def at_one(x: Tensor, rows: Tensor) -> Tensor:
        return rosenbrock(x, rows) / begun[rows]

    usual = minimise(Problems(at_one, 4), start, steps=4, line_search=line_search)
    small = minimise(Problems(lambda x, rows: 1e-12 * at_one(x, rows), 4), start, steps=4, line_search=line_search)
    assert (usual.value < 1e-6).all()
    assert (small.value < 1e-18).all()


def test_an_easy_trial_ends_while_a_hard_one_goes_on():
    def value(x: Tensor, rows: Tensor) -> Tensor:
        return torch.where(rows == 0, (x**2).sum(1), rosenbrock(x, rows))

    problems = Problems(value, 2)
    start = torch.tensor([[1.0, 1.0], [-1.2, 1.0]], dtype=torch.float64)
    found = minimise(problems, start, steps=6, line_search="armijo", stop_below=1e-12)
    assert found.evaluations[0] == INNER + 1
    assert found.evaluations[1] > found.evaluations[0]
    assert torch.equal(found.evaluations, problems.counts)
    assert torch.isnan(found.trace[0, 2:]).all()
    assert found.steps.tolist()[0] == 1


def test_trace_starts_at_the_start_and_never_rises():
    value, start = bowls(4, 10, 0.3)
    found = minimise(Problems(value, 4), start, steps=3, line_search="armijo", tolerance=0.0)
    torch.testing.assert_close(found.trace[:, 0], value(start, torch.arange(4)))
    assert (found.trace.diff(dim=1).nan_to_num(0.0) <= 0).all()


def test_patience_gives_up_on_a_flat_problem():
    def flat(x: Tensor, rows: Tensor) -> Tensor:
        return 100 + 1e-3 * torch.sin(50 * x).sum(1)

    start = torch.zeros(1, 4, dtype=torch.float64) + 0.3
    tired = minimise(Problems(flat, 1), start, steps=50, patience=2, tolerance=0.0)
    assert tired.steps.item() <= 4
    assert minimise(Problems(flat, 1), start, steps=8, patience=None, tolerance=0.0).steps.item() == 8


def test_start_is_not_modified():
    value, start = bowls(2, 5, 0.0)
    before = start.clone()
    minimise(Problems(value, 2), start, steps=1)
    assert torch.equal(start, before)


def test_progress_is_told_shares_between_0_and_1():
    value, start = bowls(1, 20, 0.2)
    told: list[float] = []
    minimise(Problems(value, 1), start, steps=4, tolerance=0.0, progress=told.append)
    assert told == sorted(told)
    assert told[0] == 0.0
    assert told[-1] < 1.0
