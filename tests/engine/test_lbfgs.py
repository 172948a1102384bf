"""L-BFGS against torch's, its memory against the classic recursion, its line searches by their conditions."""

import math

import pytest
import torch
from torch import Tensor

from leakgauge.engine.lbfgs import INNER, RULES, Curvature, Trial, judge, minimise


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


WIDTH = 9


class TwoLoops:
    """Nocedal and Wright 2006, algorithm 7.4, for one row, with a list of pairs."""

    def __init__(self, size: int) -> None:
        self.size, self.pairs, self.gamma = size, [], 1.0

    def store(self, s: Tensor, y: Tensor) -> None:
        if s @ y > 1e-10:
            self.pairs = [*self.pairs, (s, y)][-self.size :]
            self.gamma = float(s @ y / (y @ y))

    def forget(self) -> None:
        self.pairs, self.gamma = [], 1.0

    def direction(self, g: Tensor) -> Tensor:
        q, weights = g.clone(), []
        for s, y in reversed(self.pairs):
            a = (s @ q) / (s @ y)
            weights.append(a)
            q = q - a * y
        r = self.gamma * q
        for (s, y), a in zip(self.pairs, reversed(weights), strict=True):
            r = r + s * (a - (y @ r) / (s @ y))
        return -r


def pairs(count: int, rows: int, seed: int):
    """s, y = (nearly) a positive matrix times s, so that most pairs are accepted and some are not."""
    g = torch.Generator().manual_seed(seed)
    root = torch.randn(rows, WIDTH, WIDTH, generator=g, dtype=torch.float64)
    matrix = root @ root.transpose(1, 2) / WIDTH + 0.2 * torch.eye(WIDTH, dtype=torch.float64)
    for _ in range(count):
        s = torch.randn(rows, WIDTH, generator=g, dtype=torch.float64)
        noise = 0.5 * torch.randn(rows, WIDTH, generator=g, dtype=torch.float64)
        yield s, torch.einsum("aij,aj->ai", matrix, s) + noise, torch.randn(rows, WIDTH, generator=g).double()


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("seed", range(3))
def test_the_direction_is_the_two_loop_recursions(size, seed):
    """17 pairs through a ring of 1, 2 or 5; some rows skip a pair, some pairs bend the wrong way, one row forgets."""
    rows = 4
    memory, slow = (
        Curvature.empty(torch.zeros(rows, WIDTH, dtype=torch.float64), size),
        [TwoLoops(size) for _ in range(rows)],
    )
    for number, (s, y, g) in enumerate(pairs(17, rows, seed)):
        if number in (4, 11):
            y[1] = -y[1]  # negative curvature: refused
        learn = torch.tensor([True, True, number % 3 != 0, True])
        if number == 9:
            forgets = torch.tensor([False, False, False, True])
            memory.forget(forgets)
            slow[3].forget()
        ours = memory.store_and_direct(s, y, learn, g)
        for row in range(rows):
            if learn[row]:
                slow[row].store(s[row], y[row])
            torch.testing.assert_close(ours[row], slow[row].direction(g[row]), rtol=1e-9, atol=1e-10)
    assert memory.count.tolist()[3] <= 8


def test_without_pairs_it_is_the_bare_gradient():
    memory = Curvature.empty(torch.zeros(2, WIDTH), 3)
    g = torch.randn(2, WIDTH, generator=torch.Generator().manual_seed(0))
    zero = torch.zeros_like(g)
    assert torch.equal(memory.store_and_direct(zero, zero, torch.tensor([True, False]), g), -g)  # no curvature either
    assert memory.count.tolist() == [0, 0]


def test_a_row_that_forgets_everything_is_as_new_though_its_slots_hold_old_pairs():
    used = Curvature.empty(torch.zeros(1, WIDTH, dtype=torch.float64), 4)
    new = Curvature.empty(torch.zeros(1, WIDTH, dtype=torch.float64), 4)
    yes = torch.tensor([True])
    for s, y, g in pairs(6, 1, seed=0):
        used.store_and_direct(1e3 * s, 1e3 * y, yes, g)
    used.forget(yes)
    for s, y, g in pairs(7, 1, seed=1):
        torch.testing.assert_close(used.store_and_direct(s, y, yes, g), new.store_and_direct(s, y, yes, g))


def test_a_remembered_step_is_the_newton_step_along_it():
    """The secant equation: H y = s for the newest pair."""
    memory = Curvature.empty(torch.zeros(2, WIDTH, dtype=torch.float64), 5)
    for s, y, _ in pairs(8, 2, seed=3):
        found = memory.store_and_direct(s, y, (s * y).sum(1) > 0, y)
        held = (s * y).sum(1) > 1e-10
        torch.testing.assert_close(found[held], -s[held], rtol=1e-8, atol=1e-9)


def test_rows_that_stay_keep_their_memory():
    whole = Curvature.empty(torch.zeros(3, WIDTH, dtype=torch.float64), 3)
    yes = torch.tensor([True] * 3)
    stream = list(pairs(6, 3, seed=5))
    for s, y, g in stream[:4]:
        whole.store_and_direct(s, y, yes, g)
    part = Curvature(**{name: tensor.clone() for name, tensor in vars(whole).items()})
    stays = torch.tensor([2, 0])
    part.keep(stays)
    for s, y, g in stream[4:]:
        of_all = whole.store_and_direct(s, y, yes, g)
        torch.testing.assert_close(part.store_and_direct(s[stays], y[stays], yes[:2], g[stays]), of_all[stays])


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


def bowls_of_line_search(rows: int, width: int, quartic: float):
    g = torch.Generator().manual_seed(0)
    root = torch.randn(rows, width, width, generator=g, dtype=torch.float64)
    matrix = root @ root.transpose(1, 2) / width + 0.05 * torch.eye(width, dtype=torch.float64)

    def value(x: Tensor, trials: Tensor) -> Tensor:
        return 0.5 * torch.einsum("ti,tij,tj->t", x, matrix[trials], x) + quartic * (x**4).sum(1)

    return value, 2 * torch.randn(rows, width, generator=g, dtype=torch.float64)


def valley(x: Tensor, trials: Tensor) -> Tensor:
    return narrow(x)


PROBLEMS = {
    "quadratic": bowls_of_line_search(5, 12, 0.0),
    "quartic": bowls_of_line_search(5, 12, 0.3),
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
