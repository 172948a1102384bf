"""A time budget: nothing new is begun once it is spent, nor what is known to take longer than what is left."""

from __future__ import annotations

import dataclasses

import pytest

from leakgauge.execution.locks import claimed
from leakgauge.lab.reproduce import running
from leakgauge.lab.reproduce.budget import Budget
from leakgauge.lab.reproduce.running import Result, load, run_all, save


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self):
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def slow(monkeypatch, clock):
    """Every run takes ten seconds by that clock, and gives nothing."""
    ran = []

    def one(piece, *_):
        ran.append(piece)
        clock.seconds += 10
        return Result((), {}, 10.0)

    monkeypatch.setattr(running, "run_one", one)
    return ran


def test_nothing_new_is_begun_once_it_is_spent_and_what_is_finished_is_kept(small_scenario, tmp_path, clock, slow):
    pieces = [small_scenario(data=name) for name in ("digits", "mnist", "lfw", "cifar10")]
    budget = Budget(15, now=clock)
    run_all(pieces, tmp_path, budget=budget)
    assert slow == pieces[:2], "the second is begun with five seconds left"
    assert [load(p, tmp_path) is not None for p in pieces] == [True, True, False, False]
    assert budget.left == 2


def test_what_is_known_to_take_longer_is_skipped_for_what_is_not(small_scenario, tmp_path, clock, slow):
    """Known from another seed; twice the victims count as twice the seconds."""
    save(small_scenario(), tmp_path, Result((), {}, 12.0))
    longer, shorter = small_scenario(seed=1, trials=4), small_scenario(seed=1)
    budget = Budget(20, now=clock)
    run_all([longer, shorter], tmp_path, budget=budget)
    assert slow == [shorter]
    assert budget.left == 1


def test_what_other_processes_finish_meanwhile_is_known_too(small_scenario, tmp_path, clock, slow):
    budget = Budget(20, now=clock)
    assert budget.allows(small_scenario(seed=1), tmp_path)
    save(small_scenario(), tmp_path, Result((), {}, 30.0))
    (tmp_path / "half.json").write_text("{")
    assert not budget.allows(small_scenario(seed=1), tmp_path)
    assert budget.allows(dataclasses.replace(small_scenario(), data="mnist"), tmp_path)


def test_what_another_process_is_running_is_not_waited_for_once_it_is_spent(small_scenario, tmp_path, clock, slow):
    theirs, ours = small_scenario(), small_scenario(seed=1)
    budget = Budget(5, now=clock)
    with claimed(running._path(theirs, tmp_path), wait=False):
        run_all([theirs, ours], tmp_path, budget=budget)
    assert slow == [ours]
    assert budget.left == 1


def test_finished_runs_need_no_time(small_scenario, tmp_path, clock, slow):
    save(small_scenario(), tmp_path, Result((), {}, 12.0))
    clock.seconds = 99.0
    budget = Budget(0.001, now=clock)
    clock.seconds += 1
    finished = []
    run_all([small_scenario()], tmp_path, budget=budget, finished=finished.append)
    assert (budget.left, finished, slow) == (0, [small_scenario()], [])
