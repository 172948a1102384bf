"""Several attempts at each trial: which are made, which is kept, what they cost, and what an interrupt leaves."""

import time

import pytest
import torch
from torch import Tensor

from leakgauge.attacks.dlg import DLG
from leakgauge.attacks.inverting_gradients import InvertingGradients
from leakgauge.engine.descent import descend
from leakgauge.engine.driving import Minimum
from leakgauge.errors import BadInput
from leakgauge.matching.attempts import in_order, merge_trace, part_of, solve

NAN, INF = float("nan"), float("inf")


class Bowls:
    """Stands in for a problem: the value of a row is its squared distance from its trial's goal."""

    width, labels, finish, opening = 2, None, None, None
    shape, pixels, visible = (1, 2), 2, 2
    like = torch.zeros(3, 2, dtype=torch.float64)
    goals = torch.tensor([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]], dtype=torch.float64)

    def split(self, z: Tensor):
        return z[:, None], z[:, None]  # inputs (T, 1, 2), "logits" (T, 1, 2)

    def named(self, logits: Tensor):
        return logits.argmax(-1)

    def evaluator(self, trials: Tensor):
        goal = self.goals[trials]
        return lambda z: (((z - goal) ** 2).sum(1), 2 * (z - goal))


class Scripted:
    """A minimiser that finds what its script says: one row of values per attempt, one column per trial.

    x holds (trial, attempt), so that one can see whose result was kept.
    """

    def __init__(self, values, interrupted_at: int | None = None, finished=None, seconds: float = 0.0):
        self.values, self.rows_seen = values, []
        self.interrupted_at, self.finished, self.seconds = interrupted_at, finished, seconds

    def __call__(self, problem, start, *, attempts, until, progress):
        time.sleep(self.seconds)
        progress(0.5)
        number = len(self.rows_seen)
        trials = start[:, 0].long()
        self.rows_seen.append(trials.tolist())
        value = torch.tensor([self.values[number][t] for t in trials], dtype=torch.float64)
        counts = torch.full((len(trials),), 10, dtype=torch.long)
        cut = number == self.interrupted_at
        whole = torch.tensor([self.finished[t] for t in trials]) if cut else torch.ones(len(trials), dtype=torch.bool)
        return Minimum(start, value, counts, 2 * counts, torch.stack((0 * value + 100, value), 1), whole, cut)


def run(
    minimise, *, attempts, schedule="in-turn", enough=lambda value, _: value < 1, budget=None, told=None, start=None
):
    def numbered(seeds, attempt):
        return torch.tensor([[s, attempt] for s in seeds], dtype=torch.float64)

    return solve(
        Bowls(),
        (0, 1, 2),
        start=start or numbered,
        minimise=minimise,
        attempts=attempts,
        schedule=schedule,
        enough=enough,
        time_budget=budget,
        progress=(lambda _: None) if told is None else told.append,
    )


def test_in_turn_another_attempt_is_made_only_where_none_has_settled():
    script = Scripted([[0.5, 7, 7], [None, 0.2, 9], [None, None, 8]])
    found = run(script, attempts=3)
    assert script.rows_seen == [[0, 1, 2], [1, 2], [2]]
    assert found.objective.tolist() == [0.5, 0.2, 7]
    assert found.inputs[:, 0].tolist() == [[0, 0], [1, 1], [2, 0]]  # trial, attempt that is kept
    assert found.steps.tolist() == [10, 20, 30]  # all attempts are counted
    assert found.evaluations.tolist() == [20, 40, 60]
    assert found.finished is None


def test_averaged_attempts_give_their_mean_with_its_own_value():
    script = Scripted([[3, 1, 5], [2, 4, 6]])
    found = run(script, attempts=2, schedule="averaged")
    assert script.rows_seen == [[0, 1, 2], [0, 1, 2]]  # settled or not, all go to their end
    assert found.inputs[:, 0].tolist() == [[0, 0.5], [1, 0.5], [2, 0.5]]
    assert found.objective.tolist() == [0.25, 0.25, 2.25]  # of the mean, and of no attempt
    assert found.steps.tolist() == [20, 20, 20]
    assert found.evaluations.tolist() == [41, 41, 41]
    assert found.trace[:, 1].tolist() == [2, 1, 5]  # of the best attempt


def test_averaging_ends_with_what_it_has_when_interrupted():
    script = Scripted([[3, 1, 5], [2, 4, 6]], interrupted_at=0, finished=[True, False, True])
    found = run(script, attempts=2, schedule="averaged")
    assert len(script.rows_seen) == 1
    assert found.finished.tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("labels", "order"),
    [(None, [1, 0, 2]), (torch.tensor([[4, 5, 4]]), [2, 1, 0]), (torch.tensor([[4, 5, 6]]), [0, 1, 2])],
)
def test_samples_of_a_batch_are_averaged_with_those_they_resemble_and_keep_their_label(labels, order):
    problem = Bowls()
    problem.shape, problem.pixels, problem.labels = (3, 2), 6, labels
    problem.visible = 9 if labels is None else 6
    first = torch.tensor([[0.0, 0, 1, 1, 5, 5]])
    second = torch.tensor([[1.0, 1.1, 0.1, 0, 5.1, 5]]) if labels is None else torch.tensor([[5.0, 5, 1, 1, 0, 0.1]])
    searched = torch.tensor([[10.0, 11, 12]])[:, : problem.visible - 6]
    hidden = torch.tensor([[7.0]])
    moved = in_order(torch.cat((second, searched, hidden), 1), torch.cat((first, searched, hidden), 1), problem)
    assert torch.equal(moved[:, :6].reshape(3, 2), second.reshape(3, 2)[order])
    if labels is None:
        assert moved[0, 6:].tolist() == [11, 10, 12, 7]
    else:
        assert moved[0, 6:].tolist() == [7]


def test_in_turn_it_ends_as_soon_as_all_are_settled():
    script = Scripted([[0.1, 0.1, 0.1]])
    run(script, attempts=5)
    assert len(script.rows_seen) == 1


def test_in_turn_progress_is_shared_over_the_attempts():
    told: list[float] = []
    run(Scripted([[7, 7, 7]] * 4), attempts=4, told=told)
    assert told == [0.125, 0.375, 0.625, 0.875]
    assert part_of(told.append, 1, 2)(0.5) is None
    assert told[-1] == 0.75


def test_an_attempt_without_a_value_never_replaces_one_that_has_one():
    found = run(Scripted([[7, INF, NAN], [NAN, 5, 6]]), attempts=2)
    assert found.objective.tolist() == [7, 5, 6]
    assert found.inputs[:, 0, 1].tolist() == [0, 1, 1]


def test_settling_may_look_at_where_the_kept_attempt_began():
    seen = []

    def enough(value, begun):
        seen.append(begun.tolist())
        return value < 0.5 * begun

    script = Scripted([[40, 60, 60], [None, 30, 70]])
    run(script, attempts=2, enough=enough)
    assert script.rows_seen == [[0, 1, 2], [1, 2]]
    assert seen[0] == [100, 100, 100]


def test_an_interrupt_in_the_second_attempt_leaves_settled_trials_whole():
    """Trial 0 settled before; trial 1 ended and settled now; trial 2 was cut off, what it had found is kept."""
    script = Scripted([[0.5, 7, 7], [None, 0.2, 6]], interrupted_at=1, finished=[None, True, False])
    found = run(script, attempts=3)
    assert found.finished.tolist() == [True, True, False]
    assert found.objective.tolist() == [0.5, 0.2, 6]


def test_a_trial_that_another_attempt_was_due_to_is_not_whole_after_an_interrupt():
    script = Scripted([[0.5, 7, 7]], interrupted_at=0, finished=[True, True, False])
    assert run(script, attempts=2).finished.tolist() == [True, False, False]
    script = Scripted([[0.5, 7, 7]], interrupted_at=0, finished=[True, True, False])
    assert run(script, attempts=1).finished.tolist() == [True, True, False]  # it was the last one anyway


def test_when_the_time_is_up_no_further_attempt_begins():
    script = Scripted([[7, 7, 7]] * 9, seconds=0.03)
    found = run(script, attempts=9, budget=0.05)
    assert len(script.rows_seen) in (1, 2)  # a busy machine may be late after the first
    assert found.objective.tolist() == [7, 7, 7]
    assert found.finished is None
    assert 0.05 <= found.seconds < 1


def test_side_by_side_the_best_by_own_objective_is_kept_and_all_is_counted():
    values = {(0, 0): 3.0, (0, 1): 1.0, (1, 0): 4.0, (1, 1): 9.0, (2, 0): INF, (2, 1): 8.0}
    asked = []

    def minimise(problem, start, *, attempts, until, progress):
        asked.append((attempts, until))
        rows = [(int(t), int(a)) for t, a in start]
        assert rows == [(t, a) for t in range(3) for a in range(2)]  # a trial's attempts lie side by side
        torch.testing.assert_close(  # and each row is asked its own trial's question
            problem(torch.arange(6))(Bowls.goals.repeat_interleave(2, 0))[0], torch.zeros(6, dtype=torch.float64)
        )
        value = torch.tensor([values[row] for row in rows], dtype=torch.float64)
        counts = torch.arange(1, 7)
        return Minimum(start, value, counts, 10 * counts, value[:, None], torch.ones(6, dtype=torch.bool))

    found = run(minimise, attempts=2, schedule="halving")
    assert asked == [(2, INF)]
    assert found.objective.tolist() == [1, 4, 8]
    assert found.inputs[:, 0].tolist() == [[0, 1], [1, 0], [2, 1]]
    assert found.steps.tolist() == [1 + 2, 3 + 4, 5 + 6]
    assert found.evaluations.tolist() == [30, 70, 110]
    assert found.trace.tolist() == [[1], [4], [8]]


def test_side_by_side_a_trial_is_whole_only_if_all_its_attempts_have_ended():
    def minimise(problem, start, **_):
        finished = torch.tensor([True, True, True, False, False, False])
        counts = torch.ones(6, dtype=torch.long)
        return Minimum(start, start[:, 1], counts, counts, start[:, 1:], finished, interrupted=True)

    assert run(minimise, attempts=2, schedule="halving").finished.tolist() == [True, False, False]


def bowl_descent(problem, start, **how):
    return descend(problem, start, steps=400, lr=0.02, rule="sgd", decay=False, **how)


def spread(seeds, attempt):
    return torch.tensor([[s + 5.0 - attempt, s - 2.0 * attempt] for s in seeds], dtype=torch.float64)


@pytest.mark.parametrize("attempts", [1, 3, 8])
def test_halving_on_real_bowls_is_as_good_as_any_attempt_for_less(attempts):
    halved = run(bowl_descent, attempts=attempts, schedule="halving", start=spread)
    turned = run(bowl_descent, attempts=attempts, start=spread, enough=lambda value, _: value < -1)
    torch.testing.assert_close(halved.objective, turned.objective, rtol=1e-6, atol=1e-12)
    assert (turned.evaluations == attempts * 401).all()
    cost = {1: 1.0, 3: 3 / 4 + 2 / 4 + 1 / 2, 8: 2.5}[attempts]
    assert (halved.evaluations <= cost * 400 + attempts).all()


@pytest.mark.parametrize("schedule", ["in-turn", "halving"])
def test_a_time_budget_ends_a_real_search_early_with_a_result(schedule):
    def endless(problem, start, **how):
        return descend(problem, start, steps=10**7, lr=1e-6, **how)

    found = run(endless, attempts=4, schedule=schedule, start=spread, budget=0.1)
    assert found.seconds < 2
    assert torch.isfinite(found.objective).all()
    assert found.finished is None


def test_traces_of_different_lengths_are_merged_row_by_row():
    old = torch.tensor([[9.0, 5.0, 4.0], [9.0, 6.0, NAN]])
    new = torch.tensor([[8.0, 3.0]])
    merged = merge_trace(old, new, torch.tensor([0]), torch.tensor([True]), 2)
    torch.testing.assert_close(merged, torch.tensor([[8.0, 3.0, NAN], [9.0, 6.0, NAN]]), equal_nan=True)
    grown = merge_trace(torch.tensor([[8.0], [7.0]]), old, torch.tensor([0, 1]), torch.tensor([False, True]), 2)
    torch.testing.assert_close(grown, torch.tensor([[8.0, NAN, NAN], [9.0, 6.0, NAN]]), equal_nan=True)


# --- through the attacks ----------------------------------------------------------------------------


@pytest.mark.parametrize("attack", [DLG, InvertingGradients])
@pytest.mark.parametrize("seconds", [0, -1])
def test_a_time_budget_that_leaves_no_time_is_refused(attack, seconds):
    with pytest.raises(BadInput, match="time_budget must be above 0"):
        attack(time_budget=seconds)


@pytest.mark.parametrize("attack", [DLG(steps=1, threshold=1e-12), InvertingGradients(steps=1)], ids=lambda a: a.name)
def test_four_attempts_with_halving_are_at_least_as_good_as_one(scene, attack):
    """For every trial, since in one step none is given up early; in more, the best may be among those given up."""
    seen = scene("mlp:hidden=16", trials=4).seen
    one, four = (attack.with_fields(restarts=r, schedule="halving") for r in (1, 4))
    alone, best = one(seen, range(4)), four(seen, range(4))
    assert (best.objective <= alone.objective * (1 + 1e-4)).all()
    assert (best.objective < 0.99 * alone.objective).any()
    assert (best.evaluations >= 3 * alone.evaluations).all()


def test_attempts_side_by_side_need_memory_of_their_own():
    assert InvertingGradients(restarts=4, schedule="halving").rows_per_trial == 4
    assert DLG(restarts=4, schedule="halving").rows_per_trial == 4
    assert DLG(restarts=4, schedule="in-turn").rows_per_trial == 1


@pytest.mark.parametrize("attack", [DLG(steps=300), InvertingGradients(steps=10**6)], ids=lambda a: a.name)
def test_an_attack_keeps_its_time_budget(scene, attack):
    seen = scene("mlp:hidden=16", trials=2).seen
    quick = attack.with_fields(time_budget=0.1)
    result = quick(seen, (0, 1))
    assert result.seconds < 2
    assert torch.isfinite(result.objective).all()
    assert result.inputs.shape == (2, 1, 1, 8, 8)


@pytest.mark.parametrize("schedule", ["in-turn", "halving"])
def test_an_interrupted_attack_says_that_its_trials_are_not_whole(scene, schedule):
    calls: list[float] = []

    def stop(share: float) -> None:
        calls.append(share)
        if len(calls) == 2:
            raise KeyboardInterrupt

    attack = DLG(steps=50, restarts=2, threshold=1e-30, schedule=schedule)
    result = attack(scene("mlp:hidden=16").seen, (0, 1), stop)
    assert result.finished.tolist() == [False, False]
    assert torch.isfinite(result.objective).all()  # what was found is there
