"""The driver, its races and its film: ends, deadlines, interrupts, cuts, points on the way."""

import math
import time
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from leakgauge.engine.descent import descend
from leakgauge.engine.driving import Budget, State, drive, frame_steps, outraced, overwrite, rungs, winners

STARTS = torch.tensor([[1.0], [100.0], [3.0], [1e4]], dtype=torch.float64)


@dataclass(frozen=True)
class Halve:
    """Each iteration halves x, so after k of them the value is x^2 / 4^k."""

    below: float = -math.inf
    per_check: int = 2
    per_step: int = 1

    def begin(self, start: Tensor) -> State:
        return State(**State.common(start))

    def iterate(self, state: State, evaluate) -> None:
        value, gradient = evaluate(state.x)
        state.note(value)
        state.done |= (value < self.below) | ~torch.isfinite(value)
        state.x.copy_(torch.where(state.done[:, None], state.x, state.x - 0.25 * gradient))

    def look(self, state: State) -> None:
        pass


class Squares:
    """Row r's value is x^2 + floors[r]; counts points per row, and interrupts at one call if told to."""

    def __init__(self, rows: int = 4, floors=None, interrupt_at: int | None = None):
        self.floors = torch.zeros(rows, dtype=torch.float64) if floors is None else torch.tensor(floors).double()
        self.counts, self.calls, self.interrupt_at = torch.zeros(rows, dtype=torch.long), 0, interrupt_at

    def __call__(self, rows: Tensor):
        def evaluate(x: Tensor) -> tuple[Tensor, Tensor]:
            self.calls += 1
            if self.calls == self.interrupt_at:
                raise KeyboardInterrupt
            self.counts[rows] += 1
            return (x**2).sum(1) + self.floors[rows], 2 * x

        return evaluate


def test_a_row_that_has_left_is_neither_counted_nor_improved():
    """On a GPU ended rows stay in the batch until they are half of it."""
    state = State(**State.common(STARTS))
    state.note(torch.tensor([4.0, 4.0, 4.0, 4.0], dtype=torch.float64))
    state.left[1] = True
    state.x += 1
    state.note(torch.tensor([1.0, 1.0, 9.0, math.nan], dtype=torch.float64))
    assert state.best.tolist() == [1, 4, 4, 4]
    assert state.evaluations.tolist() == [2, 1, 2, 2]
    assert torch.equal(state.best_x, STARTS + torch.tensor([[1.0], [0.0], [0.0], [0.0]]))


def test_all_steps_are_taken_and_the_last_point_counts_and_no_frames_are_kept_unasked():
    problem = Squares()
    found = drive(Halve(), problem, STARTS, Budget(steps=7))
    assert found.evaluations.tolist() == problem.counts.tolist() == [8] * 4
    assert found.steps.tolist() == [7] * 4
    torch.testing.assert_close(found.x, STARTS / 2**7)
    torch.testing.assert_close(found.value, (found.x**2)[:, 0])
    assert found.finished.all()
    assert not found.interrupted
    assert found.film is None


def test_a_step_may_be_several_iterations():
    found = drive(Halve(per_step=5, per_check=5), Squares(), STARTS, Budget(steps=3))
    assert found.evaluations.tolist() == [16] * 4
    assert found.steps.tolist() == [3] * 4


def test_ended_rows_leave_and_cost_nothing_more():
    problem = Squares()
    found = drive(Halve(below=1.0), problem, STARTS, Budget(steps=40))
    needed = [math.floor(math.log2(float(x))) + 2 for x in STARTS[:, 0]]  # the point at which x^2 < 1
    looked_at = [n + 1 - n % 2 if n > 1 else n for n in needed]  # iterations 0, 2, 4, ...: points 1, 3, 5, ...
    assert found.evaluations.tolist() == problem.counts.tolist() == looked_at
    assert (found.value < 1).all()
    assert torch.isnan(found.trace[0, 2:]).all()  # behind its end
    assert torch.isfinite(found.trace[3]).all()


def test_the_trace_is_the_best_value_at_each_look():
    found = drive(Halve(), Squares(), STARTS, Budget(steps=6))
    torch.testing.assert_close(found.trace, STARTS**2 / 4 ** torch.arange(0, 7, 2))


def test_the_best_point_is_kept_where_later_ones_are_worse_or_not_numbers():
    values = iter([5.0, 2.0, math.nan, 3.0])

    def problem(rows):
        return lambda x: (torch.full((len(x),), next(values), dtype=x.dtype), 2 * x)

    @dataclass(frozen=True)
    class Stubborn(Halve):
        def iterate(self, state, evaluate):
            value, gradient = evaluate(state.x)
            state.note(value)
            state.x -= 0.25 * gradient

    found = drive(Stubborn(), problem, STARTS[:1], Budget(steps=3))
    assert found.value.item() == 2
    assert found.x.item() == 0.5


@pytest.mark.parametrize("alone", range(4))
def test_rows_together_equal_each_alone(alone):
    together = drive(Halve(below=1.0), Squares(), STARTS, Budget(steps=9))
    found = drive(Halve(below=1.0), Squares(1), STARTS[alone : alone + 1], Budget(steps=9))
    for name in ("x", "value", "steps", "evaluations", "finished"):
        assert torch.equal(getattr(found, name)[0], getattr(together, name)[alone]), name


def test_a_deadline_ends_it_after_one_iteration_with_what_is_there():
    found = drive(Halve(per_check=50), Squares(), STARTS, Budget(steps=1000, until=time.monotonic()))
    assert found.evaluations.tolist() == [1] * 4
    torch.testing.assert_close(found.value, (STARTS**2)[:, 0])
    assert torch.equal(found.x, STARTS)
    assert found.trace.shape == (4, 1)
    assert found.finished.all()  # a deadline is an end, an interrupt is not
    assert not found.interrupted


def test_a_deadline_in_between_looks_is_kept_too():
    def slowly(rows):
        def evaluate(x):
            time.sleep(0.01)
            return (x**2).sum(1), 2 * x

        return evaluate

    began = time.monotonic()
    found = drive(Halve(per_check=10**6), slowly, STARTS, Budget(steps=10**6, until=began + 0.05))
    assert time.monotonic() - began < 1
    assert 1 <= found.evaluations[0] <= 6
    torch.testing.assert_close(found.x, STARTS / 2.0 ** float(found.evaluations[0] - 1))


def test_an_interrupt_keeps_ended_rows_as_finished_and_the_others_not():
    found = drive(Halve(below=1.0), Squares(interrupt_at=6), STARTS, Budget(steps=40))
    assert found.interrupted
    assert found.finished.tolist() == [True, False, True, False]  # 1 and 3 are below 1 by then, 100 and 10 000 not
    assert found.evaluations.tolist() == [3, 5, 3, 5]
    torch.testing.assert_close(found.value, (found.x**2)[:, 0])
    torch.testing.assert_close(found.x[1], STARTS[1] / 2**4)  # best so far is there all the same


def test_a_row_that_has_ended_but_was_not_looked_at_is_not_called_finished():
    found = drive(Halve(below=1.0, per_check=100), Squares(interrupt_at=6), STARTS, Budget(steps=40))
    assert not found.finished.any()
    assert found.value[0] < 1


def test_an_interrupt_at_the_very_first_point_leaves_the_start():
    found = drive(Halve(), Squares(interrupt_at=1), STARTS, Budget(steps=5))
    assert found.interrupted
    assert not found.finished.any()
    assert torch.equal(found.x, STARTS)
    assert found.value.tolist() == [math.inf] * 4
    assert found.evaluations.tolist() == found.steps.tolist() == [0] * 4


def test_an_interrupt_may_come_from_whoever_watches_progress():
    def stop(share: float) -> None:
        if share >= 0.5:
            raise KeyboardInterrupt

    found = drive(Halve(), Squares(), STARTS, Budget(steps=8, progress=stop))
    assert found.interrupted
    assert found.evaluations.tolist() == [5] * 4


def test_progress_rises_from_0_and_stays_below_1():
    told: list[float] = []
    drive(Halve(), Squares(), STARTS, Budget(steps=8, progress=told.append))
    assert told == [0, 0.25, 0.5, 0.75]


def test_racing_attempts_are_cut_by_their_own_value_and_the_best_of_every_trial_survives():
    floors = [3.0, 1.0, 4.0, 2.0, 7.0, 9.0, 8.0, 6.0]  # two trials of four attempts
    start = torch.ones(8, 1, dtype=torch.float64)
    problem = Squares(8, floors)
    found = drive(Halve(), problem, start, Budget(steps=8, attempts=4))
    assert found.evaluations.tolist() == problem.counts.tolist() == [3, 9, 3, 5, 5, 3, 3, 9]  # cuts after 2 and 4
    torch.testing.assert_close(found.x[[1, 7]], start[[1, 7]] / 2**8)
    alone = drive(Halve(), Squares(8, floors), start, Budget(steps=8))
    assert torch.equal(found.value[[1, 7]], alone.value[[1, 7]])


def test_eight_attempts_cost_two_and_a_half():
    problem = Squares(8, range(8))
    drive(Halve(per_check=1), problem, torch.ones(8, 1, dtype=torch.float64), Budget(steps=160, attempts=8))
    assert problem.counts.sum() == 2.5 * 160 + 8  # and the start of each


def test_a_solved_brother_ends_the_others():
    start = torch.tensor([[64.0], [1.0], [64.0], [64.0], [1e6], [1e6], [1e6], [1e6]], dtype=torch.float64)
    problem = Squares(8)
    found = drive(Halve(below=0.5), problem, start, Budget(steps=400, stop_below=0.5, attempts=4))
    assert found.evaluations[:4].tolist() == [3] * 4
    assert found.value[1] < 0.5
    assert found.value[0] > 1
    assert (found.evaluations[4:] > 3).all()
    assert (found.value[4:] < 0.5).any()


def test_an_outrun_attempt_is_finished_when_an_interrupt_comes_later():
    found = drive(
        Halve(), Squares(4, [1.0, 2.0, 3.0, 4.0], interrupt_at=8), STARTS * 0 + 1, Budget(steps=40, attempts=4)
    )
    assert found.finished.tolist() == [False] * 4
    found = drive(
        Halve(), Squares(4, [1.0, 2.0, 3.0, 4.0], interrupt_at=15), STARTS * 0 + 1, Budget(steps=40, attempts=4)
    )
    assert found.finished.tolist() == [False, False, True, True]


@pytest.mark.parametrize("rows", [(True, True, True), (False, True, False), (False, False, False)])
def test_chosen_rows_are_overwritten_and_no_others(rows):
    target, source, mask = torch.zeros(3, 4), torch.ones(3, 4), torch.tensor(rows)
    overwrite(target, mask, source)
    assert torch.equal(target, mask[:, None].float().expand(3, 4))


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
