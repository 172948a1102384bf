"""The optimiser of GradInversion: Adam underneath, a warm-up, noise of its own per row, a pull within each trial."""

import pytest
import torch

from leakgauge.attacks.gradinversion import GroupDescent
from leakgauge.engine import descent
from leakgauge.engine.driving import Budget, drive

START = torch.tensor([[2.0, -1.0], [1.0, 3.0], [-2.0, 0.5], [0.3, -0.4]])


def bowl(_rows):
    """Value and slope of the squared norm, with one long axis."""
    scale = torch.tensor([1.0, 4.0])
    return lambda x: ((scale * x * x).sum(1), 2 * scale * x)


def method(**fields):
    usual = {
        "steps": 40,
        "lr": 0.1,
        "warm_up": 0,
        "noise": 0.0,
        "pull": 0.0,
        "soft_sign": False,
        "project": lambda x: x,
        "agree": lambda x, _: 0 * x,
        "seeds": (5, 6),
        "attempts": 2,
    }
    return GroupDescent(**{**usual, **fields})


def run(start=START, problem=bowl, **fields):
    chosen = method(**fields)
    return drive(chosen, problem, start, Budget(chosen.steps))


def test_without_its_additions_it_is_adam_with_a_cosine():
    plain = descent.descend(bowl, START, steps=40, lr=0.1, rule="adam", decay="cosine")
    found = run()
    torch.testing.assert_close(found.x, plain.x)
    torch.testing.assert_close(found.value, plain.value)


def test_the_soft_sign_is_that_of_the_engine():
    plain = descent.descend(bowl, START, steps=40, lr=0.1, rule="adam", decay="cosine", sign="soft")
    torch.testing.assert_close(run(soft_sign=True).x, plain.x)


def test_the_rate_rises_then_falls():
    taken = torch.arange(100, dtype=torch.float64)[:, None]
    rate = method(steps=100, warm_up=10)._rate(taken)[:, 0]
    assert rate[0] == pytest.approx(0.01, rel=1e-3)
    assert int(rate.argmax()) == 9
    assert (rate[10:].diff() < 0).all()


def test_noise_is_the_same_for_the_same_seed_and_attempt_whoever_is_there():
    together = run(noise=0.5)
    again = run(noise=0.5)
    alone = run(START[2:], seeds=(6,), noise=0.5)
    assert torch.equal(together.x, again.x)
    assert torch.equal(together.x[2:], alone.x)
    assert not torch.equal(together.x, run().x)
    same_start = run(START[:1].expand(4, -1), noise=0.5).x
    assert len(torch.unique(same_start, dim=0)) == 4


def test_noise_differs_from_step_to_step():
    """On flat ground with a constant rate nothing but noise moves a point: its steps must not repeat."""
    path = []

    def flat(_rows):
        def evaluate(x):
            path.append(x.clone())
            return torch.zeros(len(x)), torch.zeros_like(x)

        return evaluate

    run(START[:2], flat, seeds=(5,), noise=1.0, steps=35)
    steps = torch.stack(path).diff(dim=0)[:34, 0]
    directions = steps / steps.norm(dim=1, keepdim=True)
    assert len(torch.unique((1e4 * directions).round(), dim=0)) == 34


def test_the_pull_goes_to_the_consensus_of_the_own_trial_and_stays_out_of_the_value():
    def flat(_rows):
        return lambda x: (x.abs().sum(1) * 0 + 1, torch.zeros_like(x))

    visited = []

    def agree(x, trials):
        visited.append((x.clone(), trials.tolist()))
        return torch.stack([x[trials == t].mean(0) for t in trials])

    found = run(problem=flat, pull=1.0, agree=agree, steps=200)
    assert found.value.tolist() == [1.0] * 4
    last, trials = visited[-1]
    assert trials == [0, 0, 1, 1]
    torch.testing.assert_close(last[0], last[1], rtol=0, atol=0.2)
    torch.testing.assert_close(last[2], last[3], rtol=0, atol=0.2)
    assert (last[0] - last[2]).abs().max() > 1


def test_a_row_that_breaks_ends_and_the_others_go_on():
    def breaking(_rows):
        inner = bowl(_rows)

        def evaluate(x):
            value, slope = inner(x)
            return torch.where(x[:, 0] < -1.5, torch.nan, value), slope

        return evaluate

    found = run(problem=breaking)
    assert torch.isinf(found.value[2])
    assert torch.equal(found.x[[0, 1, 3]], run().x[[0, 1, 3]])


def test_points_stay_in_the_box():
    found = run(project=lambda x: x.clamp(0.5, 1), noise=1.0)
    assert found.x.min() >= 0.5
    assert found.x.max() <= 1
