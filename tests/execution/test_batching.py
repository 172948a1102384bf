"""Batches give what all trials at once give; memory, interrupts and time are shared out over them."""

import time
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from leakgauge.attacks.dlg import DLG
from leakgauge.attacks.linear import Linear
from leakgauge.client.fedsgd import fedsgd
from leakgauge.client.observe import facts_about, observe
from leakgauge.data import draw_victims, load
from leakgauge.execution import batching
from leakgauge.models import load_model
from leakgauge.settings import setting
from leakgauge.types import Attack, Client, Reconstruction, threat_model

TRIALS = 5


@pytest.fixture(scope="module")
def seen():
    digits = load("digits")
    net, batch = load_model("mlp:hidden=8,activation=sigmoid", digits.spec, 0), draw_victims(digits, TRIALS, 1, 0)
    facts = facts_about(net, batch, digits.spec, Client(), None)
    return observe(net, fedsgd()(net, batch, range(TRIALS)), threat_model("honest-but-curious+labels"), facts)


@pytest.fixture
def fit(monkeypatch):
    """fit(n): so many trials fit at once."""
    return lambda count: monkeypatch.setattr(batching, "fitting", lambda *_: count)


def run(attack, seen, seeds=range(TRIALS), progress=lambda _: None):
    return batching.reconstruct(attack, seen, seeds, progress)


@pytest.mark.parametrize("attack", [Linear(), DLG(steps=1, restarts=2, threshold=1e-4)], ids=["linear", "dlg"])
def test_batches_give_what_all_at_once_gives(seen, fit, attack):
    fit(TRIALS)
    whole = run(attack, seen)
    fit(2)
    told: list[float] = []
    parts = run(attack, seen, progress=told.append)
    torch.testing.assert_close(parts.inputs, whole.inputs, rtol=1e-2, atol=1e-3)
    assert torch.equal(parts.labels, whole.labels)
    assert parts.objective.shape == parts.steps.shape == parts.evaluations.shape == (TRIALS,)
    assert parts.seconds > 0
    assert parts.finished is None
    assert told == sorted(told)
    assert all(0 <= share <= 1 for share in told)
    if whole.trace is not None:
        assert len(parts.trace) == TRIALS
        torch.testing.assert_close(parts.trace[:, 0], whole.trace[:, 0])
    else:
        assert parts.trace is None


def test_a_trial_with_attempts_side_by_side_counts_as_many(seen):
    one, four = (batching.bytes_per_trial(DLG(restarts=r, schedule="halving"), seen) for r in (1, 4))
    assert four == 4 * one
    assert batching.bytes_per_trial(DLG(restarts=4), seen) == one


# --- an attack that does what a test tells it -------------------------------------------------------


@dataclass(frozen=True)
class Scripted(Attack):
    """Returns each trial's seed as its picture, and lets the test see and disturb every call."""

    name: ClassVar[str] = "scripted"
    summary: ClassVar[str] = "test"
    paper: ClassVar[str] = "none"
    needs: ClassVar[frozenset] = frozenset()
    calls: ClassVar[list[tuple[int, ...]]] = []
    budgets: ClassVar[list[float | None]] = []

    time_budget: float | None = setting(None, "seconds", above=0)

    def solve(self, observation, seeds, progress):
        self.calls.append(seeds)
        self.budgets.append(self.time_budget)
        assert observation.trials == len(seeds)
        self.disturb(seeds)
        progress(0.5)
        value = torch.tensor([float(s) for s in seeds])
        first = next(iter(observation.update.tensors.values())).flatten(1)[:, :3]  # whose update it was given
        count = torch.ones(len(seeds), dtype=torch.long)
        trace = value[:, None].repeat(1, len(seeds))  # longer in larger batches
        return Reconstruction(first, None, value, count, count, self.seconds(seeds), trace, self.finished(seeds))

    def disturb(self, seeds): ...

    def finished(self, seeds):
        return None

    def seconds(self, seeds):
        return 1.0


@pytest.fixture(autouse=True)
def fresh():
    Scripted.calls.clear()
    Scripted.budgets.clear()


SEEDS = (9, 8, 7, 6, 5)


def updates(seen):
    return next(iter(seen.update.tensors.values())).flatten(1)[:, :3]


def test_each_trial_keeps_its_own_seed_and_update(seen, fit):
    fit(3)
    told: list[float] = []
    found = run(Scripted(), seen, SEEDS, told.append)
    assert Scripted.calls == [(9, 8, 7), (6, 5)]
    assert found.objective.tolist() == list(SEEDS)
    assert torch.equal(found.inputs, updates(seen))
    assert found.seconds == 2
    assert told == pytest.approx([0.3, 0.8])
    assert found.trace.shape == (TRIALS, 3)
    assert torch.isnan(found.trace[3:, 2]).all()


@dataclass(frozen=True)
class Hungry(Scripted):
    error: ClassVar[Exception] = torch.OutOfMemoryError("CUDA out of memory")
    most: ClassVar[int] = 2

    def disturb(self, seeds):
        if len(seeds) > self.most:
            raise self.error


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA"), MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
)
def test_where_memory_runs_out_the_batch_is_halved_and_nothing_is_lost(seen, fit, monkeypatch, error):
    monkeypatch.setattr(Hungry, "error", error)
    fit(TRIALS)
    found = run(Hungry(), seen, SEEDS)
    assert Scripted.calls == [SEEDS, (9, 8, 7), (9, 8), (7, 6), (5,)]
    assert found.objective.tolist() == list(SEEDS)
    assert torch.equal(found.inputs, updates(seen))
    assert found.finished is None


def test_a_later_batch_may_be_the_one_that_does_not_fit(seen, fit, monkeypatch):
    def disturb(self, seeds):
        if len(seeds) > 1 and 6 in seeds:
            raise torch.OutOfMemoryError

    monkeypatch.setattr(Scripted, "disturb", disturb)
    fit(3)
    found = run(Scripted(), seen, SEEDS)
    assert Scripted.calls == [(9, 8, 7), (6, 5), (6,), (5,)]
    assert found.objective.tolist() == list(SEEDS)


def test_one_trial_that_does_not_fit_is_an_error(seen, fit, monkeypatch):
    monkeypatch.setattr(Hungry, "most", 0)
    fit(2)
    with pytest.raises(torch.OutOfMemoryError):
        run(Hungry(), seen, SEEDS)
    assert Scripted.calls == [(9, 8), (9,)]


def test_another_error_is_not_taken_for_a_lack_of_memory(seen, fit, monkeypatch):
    monkeypatch.setattr(Hungry, "error", RuntimeError("shapes do not fit"))
    fit(TRIALS)
    with pytest.raises(RuntimeError, match="shapes"):
        run(Hungry(), seen, SEEDS)
    assert len(Scripted.calls) == 1


@dataclass(frozen=True)
class Stopped(Scripted):
    at: ClassVar[int] = 2

    def disturb(self, seeds):
        if len(self.calls) == self.at:
            raise KeyboardInterrupt


def test_an_interrupt_after_the_first_batch_keeps_it(seen, fit):
    fit(2)
    found = run(Stopped(), seen, SEEDS)
    assert found.objective.tolist() == [9, 8]
    assert found.finished.tolist() == [True, True]
    assert torch.equal(found.inputs, updates(seen)[:2])
    assert len(Scripted.calls) == 2


def test_an_interrupt_in_the_first_batch_is_passed_on(seen, fit, monkeypatch):
    monkeypatch.setattr(Stopped, "at", 1)
    fit(2)
    with pytest.raises(KeyboardInterrupt):
        run(Stopped(), seen, SEEDS)


def test_a_batch_that_was_cut_off_is_the_last_and_its_whole_trials_count(seen, fit, monkeypatch):
    def finished(self, seeds):
        return torch.tensor([False, True]) if 7 in seeds else None

    monkeypatch.setattr(Scripted, "finished", finished)
    fit(2)
    found = run(Scripted(), seen, SEEDS)
    assert Scripted.calls == [(9, 8), (7, 6)]
    assert found.finished.tolist() == [True, True, False, True]


def test_a_time_budget_is_shared_over_the_batches_and_what_one_leaves_goes_to_the_others(seen, fit):
    fit(2)
    run(Scripted(time_budget=10.0), seen, SEEDS)  # every batch takes one second
    assert Scripted.budgets == pytest.approx([10 * 2 / 5, 9 * 2 / 3, 8.0])


def test_a_budget_that_is_spent_leaves_the_other_batches_a_moment(seen, fit):
    fit(2)
    found = run(Scripted(time_budget=0.5), seen, SEEDS)
    assert all(0 < budget <= 0.5 for budget in Scripted.budgets)
    assert len(found.objective) == TRIALS


def test_without_batches_the_budget_is_left_alone(seen, fit):
    fit(TRIALS)
    run(Scripted(time_budget=10.0), seen, SEEDS)
    assert Scripted.budgets == [10.0]


def test_batches_of_a_real_attack_keep_the_budget_together(seen, fit):
    fit(1)
    began = time.monotonic()
    found = run(DLG(steps=10**5, restarts=50, threshold=1e-30, time_budget=0.5), seen)
    assert time.monotonic() - began < 3
    assert len(found.objective) == TRIALS
    assert torch.isfinite(found.objective).all()
