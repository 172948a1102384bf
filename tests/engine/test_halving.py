"""Successive halving: what goes on when, who is outraced, who wins."""

import pytest
import torch

from leakgauge.engine.driving import outraced, rungs, winners

INF = float("inf")


@pytest.mark.parametrize(
    ("steps", "attempts", "expected"),
    [
        (80, 8, {10: 4, 20: 2, 40: 1}),
        (80, 3, {20: 2, 40: 1}),
        (80, 2, {40: 1}),
        (80, 1, {}),
        (1, 8, {1: 1}),  # no room for rounds: one cut, down to one
        (2, 4, {1: 1}),
    ],
)
def test_so_many_attempts_go_on_after_so_many_steps(steps, attempts, expected):
    assert rungs(steps, attempts) == expected


@pytest.mark.parametrize(("attempts", "cost"), [(1, 1.0), (2, 1.5), (4, 2.0), (8, 2.5), (16, 3.0)])
def test_eight_attempts_cost_two_and_a_half_and_each_doubling_half_a_run_more(attempts, cost):
    steps, running, spent, before = 1600, attempts, 0, 0
    for step, kept in rungs(steps, attempts).items():
        spent += running * (step - before)
        running, before = kept, step
    assert running == 1
    assert spent + (steps - before) == cost * steps


@pytest.mark.parametrize("attempts", [1, 2, 3, 5, 8, 13])
@pytest.mark.parametrize("steps", [1, 3, 50, 4800])
def test_cuts_come_in_order_and_leave_one(attempts, steps):
    found = rungs(steps, attempts)
    assert list(found) == sorted(found)
    assert list(found.values()) == sorted(found.values(), reverse=True)
    assert all(1 <= step <= max(1, steps // 2) for step in found)
    assert attempts == 1 or list(found.values())[-1] == 1


def test_each_trial_is_judged_among_its_own_rows():
    best = torch.tensor([4.0, 1.0, 3.0, 2.0, 90.0, 70.0, 60.0, 80.0])
    assert outraced(best, 4, 2, -INF).tolist() == [True, False, True, False, True, False, False, True]
    assert not outraced(best, 4, 4, -INF).any()


@pytest.mark.parametrize("kept", [1, 2, 3])
def test_ties_and_attempts_without_a_value_keep_just_as_many_and_the_first(kept):
    for best in (torch.full((3,), 5.0), torch.full((3,), INF)):
        assert outraced(best, 3, kept, -INF).tolist() == [place >= kept for place in range(3)]


def test_an_attempt_without_a_value_goes_before_one_that_has_one():
    assert outraced(torch.tensor([INF, 7.0, INF]), 3, 1, -INF).tolist() == [True, False, True]


def test_a_solved_brother_ends_the_others_and_not_other_trials():
    best = torch.tensor([5.0, 0.1, 3.0, 5.0, 4.0, 3.0])
    assert outraced(best, 3, 3, solved_below=1.0).tolist() == [True, False, True, False, False, False]


def test_each_row_may_be_solved_by_a_value_of_its_own():
    best = torch.tensor([3.0, 0.5, 2.0, 3.0, 0.5, 2.0])
    goals = torch.tensor([1.0, 1.0, 1.0, 0.1, 0.1, 0.1])
    assert outraced(best, 3, 3, goals).tolist() == [True, False, True, False, False, False]


def test_a_lone_attempt_is_never_outraced():
    assert not outraced(torch.tensor([INF, 1.0, 0.0]), 1, 1, solved_below=0.5).any()


@pytest.mark.parametrize("attempts", [1, 3, 8])
def test_the_winner_is_the_row_that_is_never_outraced(attempts):
    best = torch.rand(5 * attempts, generator=torch.Generator().manual_seed(attempts))
    best[: attempts - 1] = INF
    rows = winners(best, attempts)
    assert rows.tolist() == [t * attempts + int(best[t * attempts : (t + 1) * attempts].argmin()) for t in range(5)]
    assert not outraced(best, attempts, 1, -INF)[rows].any()


def test_among_equals_the_winner_is_the_one_that_was_kept():
    best = torch.tensor([2.0, 2.0, 2.0, INF, INF, INF])
    assert winners(best, 3).tolist() == [0, 3]
    assert not outraced(best, 3, 1, -INF)[winners(best, 3)].any()
