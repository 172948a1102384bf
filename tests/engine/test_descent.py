"""First-order rules: each equals torch.optim run on one trial alone."""

import pytest
import torch

from leakgauge.engine.descent import descend

TORCH = {
    "adam": lambda p, lr: torch.optim.Adam(p, lr=lr),
    "adamw": lambda p, lr: torch.optim.AdamW(p, lr=lr, weight_decay=0.01),
    "sgd": lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9),
    "rmsprop": lambda p, lr: torch.optim.RMSprop(p, lr=lr, alpha=0.99),
}


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
    ours = descend(problem, start, steps=steps, lr=lr, rule=rule, decay=False)
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


def test_trials_together_equal_each_alone():
    problem, start = quadratics()
    together = descend(problem, start, steps=40, lr=0.1, sign="hard")
    for t in range(len(start)):
        alone = descend(lambda rows, t=t: problem(rows + t), start[t : t + 1], steps=40, lr=0.1, sign="hard")
        torch.testing.assert_close(alone.x[0], together.x[t])


def test_the_rate_falls_so_that_signed_steps_settle():
    problem, start = quadratics()
    coarse = descend(problem, start, steps=200, lr=0.1, sign="hard", decay=False)
    fine = descend(problem, start, steps=200, lr=0.1, sign="hard", decay=True)
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
    found = descend(problem, start, steps=2000, lr=0.1, decay=False, stop_below=1e-3)
    assert (found.value < 1e-3).all()
    assert found.evaluations.max() < 2000


def test_the_start_is_not_modified():
    problem, start = quadratics()
    before = start.clone()
    descend(problem, start, steps=5, lr=0.1)
    assert torch.equal(start, before)
