"""First-order rules: each equals torch.optim run on one trial alone."""

import pytest
import torch

from leakgauge.engine.descent import SIGNS, descend

TORCH = {
    "adam": lambda p, lr: torch.optim.Adam(p, lr=lr),
    "adamw": lambda p, lr: torch.optim.AdamW(p, lr=lr, weight_decay=0.01),
    "sgd": lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9),
    "rmsprop": lambda p, lr: torch.optim.RMSprop(p, lr=lr, alpha=0.99),
    "adagrad": lambda p, lr: torch.optim.Adagrad(p, lr=lr),
}


def test_momentum_of_rmsprop_is_torchs():
    problem, start = quadratics()
    ours = descend(problem, start, steps=5, lr=1e-3, rule="rmsprop", decay="none", momentum=0.9)
    for t in range(len(start)):
        x = start[t].clone().requires_grad_()
        optimiser = torch.optim.RMSprop([x], lr=1e-3, alpha=0.99, momentum=0.9)
        for _ in range(5):
            x.grad = problem(torch.tensor([t]))(x.detach()[None])[1][0]
            optimiser.step()
        torch.testing.assert_close(ours.x[t], x.detach())


def quadratics(trials=4, size=5, seed=0):
    g = torch.Generator().manual_seed(seed)
    root = torch.randn(trials, size, size, generator=g, dtype=torch.float64)
    matrix = root @ root.transpose(1, 2) / size + torch.eye(size, dtype=torch.float64)
    goal = torch.randn(trials, size, generator=g, dtype=torch.float64)

    def problem(rows):
        def evaluate(x):
            r = x - goal[rows]
            product = torch.einsum("aij,aj->ai", matrix[rows], r)
            return 0.5 * (r * product).sum(1), product

        return evaluate

    return problem, torch.randn(trials, size, generator=g, dtype=torch.float64)


@pytest.mark.parametrize("rule", TORCH)
def test_a_rule_equals_torch_optim_trial_by_trial(rule):
    problem, start = quadratics()
    steps, lr = 30, 0.05
    # On a descending path the best point is the last one, so the two can be compared by value.
    ours = descend(problem, start, steps=steps, lr=lr, rule=rule, decay="none")
    for t in range(len(start)):
        x = start[t].clone().requires_grad_()
        optimiser = TORCH[rule]([x], lr)
        values = []
        for _ in range(steps + 1):
            value, gradient = problem(torch.tensor([t]))(x.detach()[None])
            values.append(float(value))
            x.grad = gradient[0]
            optimiser.step()
        assert float(ours.value[t]) == pytest.approx(min(values), rel=1e-9)


@pytest.mark.parametrize("sign", SIGNS)
def test_trials_together_equal_each_alone(sign):
    problem, start = quadratics()
    together = descend(problem, start, steps=40, lr=0.1, sign=sign)
    for t in range(len(start)):
        alone = descend(lambda rows, t=t: problem(rows + t), start[t : t + 1], steps=40, lr=0.1, sign=sign)
        torch.testing.assert_close(alone.x[0], together.x[t])


def points_of(gradient, start, **how):
    """Every point that is evaluated, under a constant gradient: (steps + 1, D). Values fall, so none is held back."""
    seen = []

    def problem(rows):
        def evaluate(x):
            seen.append(x[0].clone())
            return -torch.full((len(x),), float(len(seen)), dtype=x.dtype), gradient.expand_as(x)

        return evaluate

    descend(problem, start, rule="sgd", **how)
    return torch.stack(seen)


@pytest.mark.parametrize(
    ("sign", "first"), [("none", [-3.0, 1.0, 0.0]), ("hard", [-1.0, 1.0, 0.0]), ("soft", [-9 / 13, 3 / 7, 0.0])]
)
def test_what_the_rule_sees_of_a_gradient(sign, first):
    """Soft: g / (|g| + mean |g|), the mean being 4/3 here."""
    gradient = torch.tensor([3.0, -1.0, 0.0], dtype=torch.float64)
    points = points_of(gradient, torch.zeros(1, 3, dtype=torch.float64), steps=1, lr=1.0, decay="none", sign=sign)
    torch.testing.assert_close(points[1], torch.tensor(first, dtype=torch.float64))


def test_a_gradient_of_zeros_has_a_soft_sign_of_zero():
    points = points_of(torch.zeros(3), torch.ones(1, 3), steps=2, lr=1.0, sign="soft")
    assert torch.equal(points, torch.ones(3, 3))


@pytest.mark.parametrize("steps", [16, 40])
def test_the_rate_falls_tenfold_after_three_five_and_seven_eighths(steps):
    """With a momentum that is known, the length of each step gives its rate."""
    start = torch.zeros(1, 1, dtype=torch.float64)
    points = points_of(torch.ones(1, dtype=torch.float64), start, steps=steps, lr=0.5)[:, 0]
    momentum = (1 - 0.9 ** torch.arange(1, steps + 1, dtype=torch.float64)) / 0.1
    rates = -points.diff() / momentum
    expected = [0.5 * 0.1 ** sum(k >= steps * mark for mark in (3 / 8, 5 / 8, 7 / 8)) for k in range(steps)]
    torch.testing.assert_close(rates, torch.tensor(expected, dtype=torch.float64))


def test_the_start_is_projected_too():
    problem, start = quadratics()
    found = descend(problem, 100 + start, steps=1, lr=1e-9, project=lambda x: x.clamp(-0.1, 0.1))
    torch.testing.assert_close(found.x, torch.full_like(start, 0.1), rtol=0, atol=1e-6)


def test_racing_attempts_keep_the_one_that_gets_lowest():
    """Two trials of four attempts: the same bowl from nearer and farther."""
    problem, _ = quadratics(trials=2)
    start = torch.tensor([9.0, 1.0, 5.0, 3.0, 8.0, 7.0, 6.0, 2.0], dtype=torch.float64)[:, None].repeat(1, 5)
    how = {"steps": 400, "lr": 0.01, "rule": "sgd", "decay": False}
    racing = descend(lambda rows: problem(rows // 4), start, **how, attempts=4)
    full = descend(lambda rows: problem(rows // 4), start, **how)
    assert torch.equal(racing.value[[1, 7]], full.value[[1, 7]])
    assert racing.evaluations.tolist() == [101, 401, 101, 201, 101, 101, 201, 401]


def test_the_rate_falls_so_that_signed_steps_settle():
    problem, start = quadratics()
    coarse = descend(problem, start, steps=200, lr=0.1, sign="hard", decay="none")
    fine = descend(problem, start, steps=200, lr=0.1, sign="hard", decay="steps")
    assert fine.value.mean() < 0.2 * coarse.value.mean()


def test_projection_holds_after_every_step():
    problem, start = quadratics()
    found = descend(problem, start, steps=50, lr=0.5, project=lambda x: x.clamp(-0.1, 0.1))
    assert found.x.abs().max() <= 0.1


def test_a_diverging_trial_leaves_its_neighbours_alone():
    problem, start = quadratics()

    def sabotaged(rows):
        evaluate = problem(rows)

        def spoilt(x):
            value, gradient = evaluate(x)
            bad = rows == 1
            return value.where(~bad, torch.nan), gradient.where(~bad[:, None], torch.nan)

        return spoilt

    clean, spoilt = (descend(p, start, steps=120, lr=0.1) for p in (problem, sabotaged))
    others = torch.tensor([0, 2, 3])
    torch.testing.assert_close(spoilt.x[others], clean.x[others])
    assert spoilt.evaluations[1] < clean.evaluations[1]
    assert spoilt.value[1] == torch.inf


def test_a_solved_trial_stops_costing():
    problem, start = quadratics()
    found = descend(problem, start, steps=2000, lr=0.1, decay="none", stop_below=1e-3)
    assert (found.value < 1e-3).all()
    assert found.evaluations.max() < 2000


def test_a_trial_that_must_fall_to_a_share_of_its_start_goes_on_below_its_goal():
    problem, start = quadratics()
    begun, _ = problem(torch.arange(len(start)))(start)
    found = descend(problem, start, steps=2000, lr=0.1, decay="none", stop_below=1e9, stop_share=0.1)
    assert (found.steps > 0).all()
    assert (found.value < 0.1 * begun).all()
    assert descend(problem, start, steps=20, lr=0.1, stop_below=1e9).steps.max() == 0


def test_the_start_is_not_modified():
    problem, start = quadratics()
    before = start.clone()
    descend(problem, start, steps=5, lr=0.1)
    assert torch.equal(start, before)
