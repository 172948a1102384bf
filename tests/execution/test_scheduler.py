"""Every unit comes back whole and once, or as failed, whatever its workers do; without any process or cluster."""

from __future__ import annotations

import pytest

from leakgauge.attacks.linear import Linear
from leakgauge.errors import BadInput, LeakgaugeError
from leakgauge.execution.scheduler import STARTS, Loss, Scheduler
from leakgauge.execution.work_units import Callbacks, WorkUnit, failed_part
from leakgauge.execution.worker import Finished, Notice, Progress, Ready, Refused
from leakgauge.setup.plan import Cell
from leakgauge.setup.setup import load_setup
from leakgauge.types import Scenario

EARLY = LeakgaugeError("none of them got ready")
CRASH = Loss("workers crashed", 3, EARLY, STARTS)
KILL = Loss("workers were killed", 5, EARLY, STARTS)
NO_ROOM = Loss("needs too much", 1, EARLY, STARTS, memory=True)


class Scripted:
    """Workers that do with the n-th sending of a unit what `acts` says: whole, or these messages."""

    def __init__(self, setup, slots=2, acts=None, loading=None):
        self.slots, self.acts, self.loading = slots, acts or {}, list(loading or [])
        self.setup = setup
        self.loaded, self.given, self.ended, self.started = [], [], [], 0
        self.say = {}  # worker -> messages that it has not said yet

    def load(self, setup):
        self.loaded.append(setup.key)

    def start(self):
        self.started += 1
        self.say[self.started] = [self.loading.pop(0) if self.loading else Ready()]
        return self.started

    def send(self, worker, unit, _):
        before = sum(u.name == unit.name for u in self.given)
        self.given.append(unit)
        acts = self.acts.get(unit.key, [])
        whole = [part(self.setup, unit, *unit.trials), Finished()]
        self.say[worker] = list(acts[before]) if before < len(acts) else whole

    def messages(self, workers):
        worker = next(w for w in workers if self.say[w])
        yield worker, self.say[worker].pop(0)

    def end(self, workers):
        self.ended += workers


@pytest.fixture(scope="module")
def setup():
    return load_setup(Scenario(data="digits", model="mlp:hidden=8", trials=8), None, "cpu")


def unit(label, *trials):
    return WorkUnit(label, 0, Cell(Linear(), "none", False, label), trials)


def part(setup, of, *trials):
    return failed_part(setup, WorkUnit(of.key, 0, of.cell, trials), "ran")


def came(transport, *units, callbacks=None):
    parts = Scheduler(transport).run(transport.setup, iter(units), callbacks or Callbacks())
    return sorted((u.key, t.finding.trial, t.finding.error) for u, p in parts for t in p.trials)


def test_every_trial_comes_back_once(setup):
    transport = Scripted(setup)
    labels = [f"cell{n}" for n in range(5)]
    assert came(transport, *(unit(label, 0, 1) for label in labels)) == [
        (label, trial, "ran") for label in labels for trial in (0, 1)
    ]
    assert len(transport.given) == 5
    assert transport.started == 2


def test_no_unit_is_drawn_before_there_is_room_for_it_and_no_worker_started_without_one(setup):
    drawn, transport = [], Scripted(setup, slots=3)
    wanted = (drawn.append(u) or u for u in [unit("a", 0), unit("b", 0), unit("c", 0), unit("d", 0)])
    next(Scheduler(transport).run(setup, wanted, Callbacks()))
    assert len(drawn) == transport.started == 3
    alone = Scripted(setup, slots=3)
    came(alone, unit("a", 0))
    assert alone.started == 1


def test_only_the_rest_of_a_unit_is_run_again_and_the_lost_worker_is_ended(setup):
    dying = unit("dying", 0, 1, 2, 3)
    transport = Scripted(setup, acts={"dying": [[part(setup, dying, 0, 1), CRASH]]})
    assert [trial for _, trial, _ in came(transport, dying)] == [0, 1, 2, 3]
    assert [u.trials for u in transport.given] == [(0, 1, 2, 3), (2, 3)]
    assert transport.ended == [1]


def test_a_loss_after_the_last_part_costs_nothing(setup):
    late = unit("late", 0)
    transport = Scripted(setup, acts={"late": [[part(setup, late, 0), CRASH]]})
    assert came(transport, late) == [("late", 0, "ran")]
    assert len(transport.given) == 1


def test_a_unit_is_given_up_after_as_many_losses_as_their_cause_allows(setup):
    transport = Scripted(setup, acts={"bad": [[CRASH]] * 3, "shot": [[KILL]] * 5})
    assert came(transport, unit("bad", 0, 1), unit("shot", 0), unit("good", 0)) == [
        ("bad", 0, "given up: 3 workers crashed"),
        ("bad", 1, "given up: 3 workers crashed"),
        ("good", 0, "ran"),
        ("shot", 0, "given up: 5 workers were killed"),
    ]


def test_each_cause_is_counted_by_itself(setup):
    transport = Scripted(setup, acts={"unlucky": [[CRASH], [KILL], [CRASH], [KILL], [KILL], [KILL]]})
    assert came(transport, unit("unlucky", 0)) == [("unlucky", 0, "ran")]
    transport = Scripted(setup, acts={"bad": [[KILL], [KILL], [CRASH], [CRASH], [CRASH]]})
    assert came(transport, unit("bad", 0)) == [("bad", 0, "given up: 5 workers crashed")]


def test_losses_count_only_while_nothing_comes_back(setup):
    slow = unit("slow", *range(5))
    transport = Scripted(setup, acts={"slow": [[CRASH], [CRASH], *([part(setup, slow, n), CRASH] for n in range(4))]})
    assert [error for _, _, error in came(transport, slow)] == ["ran"] * 5


def test_a_unit_that_needs_too_much_memory_is_halved_down_to_one_trial_and_then_given_up(setup):
    transport = Scripted(setup, acts={"big": [[NO_ROOM]] * 3})
    assert came(transport, unit("big", 0, 1, 2, 3)) == [("big", trial, "needs too much") for trial in range(4)]
    assert [u.at_once for u in transport.given] == [None, 2, 1]


def test_want_of_memory_that_others_may_have_caused_is_forgiven_at_one_trial_too(setup):
    short = Loss("nodes ran out of memory", 3, EARLY, STARTS, memory=True)
    transport = Scripted(setup, acts={"big": [[short]] * 4})
    assert [error for _, _, error in came(transport, unit("big", 0, 1, 2, 3))] == ["ran"] * 4
    assert [u.at_once for u in transport.given] == [None, 2, 1, 1, 1]


def test_workers_that_are_lost_before_they_are_ready_are_not_started_for_ever(setup):
    transport = Scripted(setup, slots=1, loading=[CRASH] * STARTS)
    with pytest.raises(LeakgaugeError, match="none of them got ready"):
        came(transport, unit("any", 0))
    assert transport.started == STARTS
    lucky = Scripted(setup, slots=1, loading=[CRASH] * (STARTS - 1))
    assert came(lucky, unit("any", 0)) == [("any", 0, "ran")]


def test_what_every_worker_would_meet_while_it_loads_ends_the_run_at_once(setup):
    transport = Scripted(setup, loading=[Loss("", 1, BadInput("x", allowed="1", got=2, do="3"), 1)])
    with pytest.raises(BadInput, match="x must be 1, got 2"):
        came(transport, unit("any", 0))
    assert transport.started == 1


def test_a_refusal_ends_the_run(setup):
    with pytest.raises(LeakgaugeError, match=r"^one line$"):
        came(Scripted(setup, acts={"bad": [[Refused("one line", expected=True)]]}), unit("bad", 0))
    with pytest.raises(RuntimeError, match="in a worker:\nTraceback"):
        came(Scripted(setup, loading=[Refused("Traceback ...", expected=False)]), unit("bad", 0))


def test_progress_and_notices_are_passed_on(setup):
    shares, lines, said = [], [], unit("said", 0)
    transport = Scripted(setup, acts={"said": [[Progress(0.5), Notice("a line"), part(setup, said, 0), Finished()]]})
    came(transport, said, callbacks=Callbacks(lambda u, share: shares.append((u.key, share)), lines.append))
    assert (shares, lines) == ([("said", 0.5)], ["a line"])


def test_workers_stay_for_the_next_units_and_end_with_the_setup_or_close(setup):
    transport = Scripted(setup, slots=1)
    scheduler = Scheduler(transport)
    other = load_setup(Scenario(data="digits", model="mlp:hidden=9", trials=8), None, "cpu")
    for where in (setup, setup, other):
        list(scheduler.run(where, iter([unit("a", 0)]), Callbacks()))
    assert transport.loaded == [setup.key, other.key]
    assert (transport.started, transport.ended) == (2, [1])
    scheduler.close()
    assert transport.ended == [1, 2]
