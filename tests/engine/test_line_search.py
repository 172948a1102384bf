"""Step lengths: the Wolfe conditions hold where a point is taken, and the search is about as cheap as torch's."""

import math

import pytest
import torch
from torch import Tensor

from leakgauge.engine.lbfgs import minimise
from leakgauge.engine.line_search import Trial, judge

C1, C2 = 1e-4, 0.9


def with_gradient(value):
    def evaluate(x: Tensor) -> tuple[Tensor, Tensor]:
        x = x.detach().requires_grad_()
        found = value(x)
        (gradient,) = torch.autograd.grad(found.sum(), x)
        return found.detach(), gradient

    return evaluate


def search(value, x: Tensor, rule: str, length: float, most: int = 60):
    """Along the downhill gradient from x (A, D). Per row: the length taken (nan if it gave up) and the tries."""
    evaluate = with_gradient(value)
    begun, gradient = evaluate(x)
    direction, every = -gradient, torch.ones(len(x), dtype=torch.bool)
    slope = (gradient * direction).sum(1)
    trial = Trial.new(x, rule)
    trial.begin(every, torch.full_like(begun, length), slope, begun, gradient)
    taken, tries, open_rows = torch.full_like(begun, torch.nan), torch.zeros(len(x), dtype=torch.long), every
    for _ in range(most):
        if not open_rows.any():
            break
        at = trial.length.clone()
        found, g = evaluate(x + at[:, None] * direction)
        tries += open_rows
        answer = judge(trial, rule, found, (g * direction).sum(1), g, open_rows)
        assert not (answer.accept & answer.give_up).any()
        taken = torch.where(answer.accept, at, torch.where(answer.take_low, trial.low[:, 0], taken))
        open_rows = open_rows & ~(answer.accept | answer.take_low | answer.give_up)
    assert not open_rows.any()
    return taken, tries, direction


def waves(x: Tensor) -> Tensor:
    return (0.1 * x**2 + torch.cos(3 * x)).sum(1)


def steep(x: Tensor) -> Tensor:
    return (x**4 + torch.exp(x)).sum(1)


def narrow(x: Tensor) -> Tensor:
    return (100 * (x[:, 1:] - x[:, :-1] ** 2) ** 2 + (1 - x[:, :-1]) ** 2).sum(1)


def starts(rows: int, width: int = 3, seed: int = 0) -> Tensor:
    return 2 * torch.randn(rows, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("value", [waves, steep, narrow])
@pytest.mark.parametrize("length", [1e-4, 0.1, 1.0, 30.0])
def test_a_point_that_wolfe_accepts_meets_both_conditions(value, length):
    x = starts(40)
    taken, tries, direction = search(value, x, "wolfe", length)
    evaluate = with_gradient(value)
    (begun, g0), (found, g) = evaluate(x), evaluate(x + taken[:, None] * direction)
    slope, left = (g0 * direction).sum(1), (g * direction).sum(1)
    assert torch.isfinite(taken).all()
    assert (found <= begun + C1 * taken * slope + 1e-12).all()
    assert (left.abs() <= C2 * slope.abs() + 1e-12).all()
    assert tries.float().mean() < 12


@pytest.mark.parametrize("rule", ["wolfe", "armijo"])
@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_a_cliff_on_the_way_is_backed_away_from(rule, bad):
    """Beyond |x| = 1 there is no value, and the first length leads there."""

    def cliff(x: Tensor) -> Tensor:
        return torch.where((x.abs() > 1).any(1), bad, ((x - 0.5) ** 2).sum(1))

    x = torch.tensor([[-0.9, 0.0], [-0.5, 0.9]], dtype=torch.float64)
    taken, _, direction = search(cliff, x, rule, 5.0)
    found = cliff(x + taken[:, None] * direction)
    assert (found < cliff(x)).all()


def test_a_point_with_a_value_but_no_gradient_is_not_taken():
    x = torch.zeros(1, 2, dtype=torch.float64)
    one = torch.ones(1, dtype=torch.float64)
    for rule in ("wolfe", "armijo", "fixed"):
        trial = Trial.new(x, rule)
        trial.begin(torch.tensor([True]), one, -one, one, x + 1)
        answer = judge(trial, rule, 0 * one, 0 * one, x + torch.nan, torch.tensor([True]))
        assert not answer.accept
        assert bool(answer.give_up) == (rule == "fixed")
        assert 0 < trial.length <= 1


@pytest.mark.parametrize("rule", ["wolfe", "armijo"])
def test_a_line_without_any_value_is_given_up(rule):
    x = torch.ones(1, 2, dtype=torch.float64)
    calls = []

    def once(x: Tensor) -> Tensor:
        calls.append(1)
        return (x**2).sum(1) * (1.0 if len(calls) == 1 else math.nan)

    taken, tries, _ = search(once, x, rule, 1.0)
    assert torch.isnan(taken).all()
    assert tries.item() <= 26


def test_a_function_without_an_end_is_not_followed_for_ever():
    taken, tries, _ = search(lambda x: -x.sum(1), torch.zeros(1, 2, dtype=torch.float64), "wolfe", 1.0)
    assert taken.item() > 1
    assert tries.item() <= 26


def test_armijo_halves_and_never_goes_farther():
    x = starts(30)
    taken, tries, _ = search(steep, x, "armijo", 1.0)
    torch.testing.assert_close(taken, 0.5 ** (tries - 1).double())


def test_fixed_takes_what_it_is_given():
    taken, tries, _ = search(steep, starts(5), "fixed", 0.3)
    assert taken.tolist() == [0.3] * 5
    assert tries.tolist() == [1] * 5


@pytest.mark.parametrize("rule", ["wolfe", "armijo"])
def test_lines_together_equal_each_alone(rule):
    x = starts(12)
    together = search(waves, x, rule, 1.0)
    for row in range(12):
        alone = search(waves, x[row : row + 1], rule, 1.0)
        torch.testing.assert_close(alone[0][0], together[0][row])
        assert alone[1][0] == together[1][row]


def test_rows_that_do_not_search_are_not_moved():
    x = starts(2)
    for rule in ("wolfe", "armijo"):
        trial, ones = Trial.new(x, rule), torch.ones(2, dtype=torch.float64)
        trial.begin(torch.tensor([True, True]), ones, -ones, ones, x)
        before = {name: tensor.clone() for name, tensor in vars(trial).items()}
        judge(trial, rule, 9 * ones, ones, x, torch.tensor([True, False]))
        for name, tensor in vars(trial).items():
            assert torch.equal(tensor[1], before[name][1]), name
        assert trial.length[0] < 1


# --- the whole optimiser with it, beside torch's ----------------------------------------------------


def bowls(rows: int, width: int, quartic: float):
    g = torch.Generator().manual_seed(0)
    root = torch.randn(rows, width, width, generator=g, dtype=torch.float64)
    matrix = root @ root.transpose(1, 2) / width + 0.05 * torch.eye(width, dtype=torch.float64)

    def value(x: Tensor, trials: Tensor) -> Tensor:
        return 0.5 * torch.einsum("ti,tij,tj->t", x, matrix[trials], x) + quartic * (x**4).sum(1)

    return value, 2 * torch.randn(rows, width, generator=g, dtype=torch.float64)


def valley(x: Tensor, trials: Tensor) -> Tensor:
    return narrow(x)


PROBLEMS = {
    "quadratic": bowls(5, 12, 0.0),
    "quartic": bowls(5, 12, 0.3),
    "rosenbrock": (valley, torch.tensor([[-1.2, 1.0], [0.0, 3.0], [2.0, 2.0], [-2.0, -1.0], [1.5, -2.0]]).double()),
}


def ours_until_solved(value, start: Tensor, solved: float) -> list[int]:
    """Points of each trial up to the first below `solved`; all minima are 0."""
    needed = [0] * len(start)
    reached = [False] * len(start)

    def problem(rows: Tensor):
        evaluate = with_gradient(lambda x: value(x, rows))

        def noted(x: Tensor) -> tuple[Tensor, Tensor]:
            found, gradient = evaluate(x)
            for row, v in zip(rows.tolist(), found.tolist(), strict=True):
                needed[row] += not reached[row]
                reached[row] |= v < solved
            return found, gradient

        return noted

    found = minimise(problem, start, steps=15, history=10, line_search="wolfe", tolerance=0.0, stop_below=solved)
    assert (found.value < solved).all()
    return needed


class Solved(Exception):
    """Ends torch's run at the point that is good enough."""


def torchs_until_solved(value, start: Tensor, solved: float) -> list[int]:
    needed = []
    for t in range(len(start)):
        x = start[t].clone().requires_grad_()
        optimiser = torch.optim.LBFGS(
            [x],
            max_iter=200,
            max_eval=400,
            history_size=10,
            tolerance_grad=0,
            tolerance_change=0,
            line_search_fn="strong_wolfe",
        )
        seen: list[float] = []

        def closure(t=t, x=x, optimiser=optimiser, seen=seen):
            optimiser.zero_grad()
            loss = value(x[None], torch.tensor([t]))[0]
            loss.backward()
            seen.append(loss.item())
            if seen[-1] < solved:
                raise Solved
            return loss

        with pytest.raises(Solved):
            optimiser.step(closure)
        needed.append(len(seen))
    return needed


@pytest.mark.parametrize("name", PROBLEMS)
def test_wolfe_reaches_the_minimum_about_as_fast_as_torchs_strong_wolfe(name):
    value, start = PROBLEMS[name]
    ours, theirs = ours_until_solved(value, start, 1e-8), torchs_until_solved(value, start, 1e-8)
    assert all(mine <= 1.6 * their for mine, their in zip(ours, theirs, strict=True)), (ours, theirs)


@pytest.mark.parametrize("name", PROBLEMS)
def test_with_wolfe_trials_together_equal_each_alone(name):
    value, start = PROBLEMS[name]

    def problem(rows: Tensor):
        return with_gradient(lambda x: value(x, rows))

    together = minimise(problem, start, steps=1, history=4, line_search="wolfe")
    for t in range(len(start)):
        one = minimise(lambda rows, t=t: problem(rows + t), start[t : t + 1], steps=1, history=4, line_search="wolfe")
        torch.testing.assert_close(one.x[0], together.x[t], rtol=1e-6, atol=1e-8)
        assert one.evaluations[0] == together.evaluations[t]


def test_with_wolfe_a_trial_that_diverges_leaves_its_neighbours_alone():
    value, start = PROBLEMS["quartic"]

    def problem(rows: Tensor):
        sick = torch.where(rows == 1, math.nan, 1.0)
        return with_gradient(lambda x: value(x, rows) * torch.where((x**2).sum(1) < 5, sick, 1.0))

    healthy = minimise(lambda rows: with_gradient(lambda x: value(x, rows)), start, steps=3, line_search="wolfe")
    spoilt = minimise(problem, start, steps=3, line_search="wolfe")
    others = [0, 2, 3, 4]
    torch.testing.assert_close(spoilt.x[others], healthy.x[others], rtol=1e-6, atol=1e-8)
    assert torch.isfinite(spoilt.value).all()
    assert torch.isfinite(spoilt.x).all()
    assert spoilt.value[1] <= value(start, torch.arange(5))[1]
