"""Workers die, of all causes; their units do not."""

from __future__ import annotations

import dataclasses
import importlib
import sys

import pytest
import torch

from leakgauge.attacks.linear import Linear
from leakgauge.audit.run import run_audit
from leakgauge.errors import BadInput, LeakgaugeError
from leakgauge.execution import local as workers
from leakgauge.execution import work_units as units
from leakgauge.execution.local import Workers, memory_from_text
from leakgauge.execution.scheduler import Scheduler
from leakgauge.execution.work_units import Callbacks, WorkUnit, failed_part
from leakgauge.execution.worker import Finished, Ready, Refused, packed, send
from leakgauge.execution.worker_life import OVER_MEMORY
from leakgauge.recording.own_update import IN_PYTHON
from leakgauge.setup.plan import Cell
from leakgauge.setup.setup import load_setup
from leakgauge.types import Scenario, Training

# A worker that imports nothing of ours and starts in no time. What it does with the n-th asking for a label is told in
# advance: end in some way, or answer with these messages, which are ready as bytes.
ACTOR = """
import os, pickle, signal
from pathlib import Path

def begin(starter, pipe, setup, device, processes, memory):
    script = pickle.loads(setup)
    pipe.send_bytes(script["ready"])
    while True:
        try:
            asked = pipe.recv_bytes()
        except EOFError:
            return
        label = next(label for label in script["acts"] if label.encode() in asked)
        before = len(list(Path(script["folder"]).glob(label + "-*")))
        Path(script["folder"], f"{label}-{before}").touch()
        for act in script["acts"][label][before]:
            if act == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            elif act == "cut off":
                os.write(pipe.fileno(), (10**6).to_bytes(4, "big") + b"half a word")
                os._exit(1)
            elif isinstance(act, int):
                os._exit(act)
            else:
                pipe.send_bytes(act)
"""
FINISHED = packed(Finished())


@pytest.fixture(scope="module")
def setup():
    return load_setup(Scenario(data="digits", model="mlp:hidden=8", trials=4), None, "cpu")


def unit(label, *trials):
    return WorkUnit(label, 0, Cell(Linear(), "none", False, label), trials)


def part(setup, label, *trials):
    return packed(failed_part(setup, unit(label, *trials), f"done by {label}"))


@pytest.fixture
def played(setup, tmp_path, monkeypatch):
    """played(acts, units): (label, trial, what it says) of all that came back, and the units that were handed out."""
    (tmp_path / "actor.py").write_text(ACTOR)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(workers, "begin", importlib.import_module("actor").begin)
    given = []
    monkeypatch.setattr(workers, "send", lambda pipe, c: (given.append(c), send(pipe, c)))

    def play(acts, *wanted, count=2):
        source = {"ready": packed(Ready()), "acts": acts, "folder": str(tmp_path)}
        monkeypatch.setattr(workers.SetupSource, "of", lambda *_: source)
        pool = Scheduler(Workers(count, device="cpu", memory=10**9))
        try:
            came = [
                (c.key, t.finding.trial, t.finding.error)
                for c, p in pool.run(setup, iter(wanted), Callbacks())
                for t in p.trials
            ]
            return sorted(came), given
        finally:
            pool.close()

    yield play
    sys.modules.pop("actor")


def test_units_are_shared_and_each_comes_back_once(setup, played):
    labels = [f"cell{n}" for n in range(7)]
    acts = {label: [[part(setup, label, 0, 1), FINISHED]] for label in labels}
    came, given = played(acts, *(unit(label, 0, 1) for label in labels))
    assert came == [(label, trial, f"done by {label}") for label in labels for trial in (0, 1)]
    assert len(given) == 7


@pytest.mark.parametrize("end", ["killed", "cut off", 3])
def test_the_unit_of_a_worker_that_died_is_run_by_another(setup, played, end):
    acts = {"dying": [[end], [part(setup, "dying", 0, 1), FINISHED]], "other": [[part(setup, "other", 0), FINISHED]]}
    came, given = played(acts, unit("dying", 0, 1), unit("other", 0))
    assert came == [("dying", 0, "done by dying"), ("dying", 1, "done by dying"), ("other", 0, "done by other")]
    assert len(given) == 3


def test_what_came_before_the_death_is_not_run_again(setup, played):
    acts = {"dying": [[part(setup, "dying", 0, 1), "killed"], [part(setup, "dying", 2, 3), FINISHED]]}
    came, given = played(acts, unit("dying", 0, 1, 2, 3))
    assert [trial for _, trial, _ in came] == [0, 1, 2, 3]
    assert [c.trials for c in given] == [(0, 1, 2, 3), (2, 3)]


def test_a_worker_that_dies_once_all_is_said_costs_nothing(setup, played):
    came, given = played({"late": [[part(setup, "late", 0), "killed"]]}, unit("late", 0))
    assert [trial for _, trial, _ in came] == [0]
    assert len(given) == 1


def test_a_unit_that_ends_every_worker_is_given_up_and_stands_as_failed(setup, played):
    acts = {"bad": [[3], [3], [3]], "good": [[part(setup, "good", 0), FINISHED]]}
    came, _ = played(acts, unit("bad", 0, 1), unit("good", 0))
    why = "given up: 3 worker processes died over it, the last with exit code 3"
    assert came == [("bad", 0, why), ("bad", 1, why), ("good", 0, "done by good")]


def test_who_is_killed_from_outside_gets_more_chances(setup, played, monkeypatch):
    monkeypatch.setattr(workers, "KILLS", 5)
    came, given = played({"shot": [["killed"]] * 5}, unit("shot", 0))
    assert len(given) == 5
    assert came == [("shot", 0, "given up: 5 worker processes died over it, the last by SIGKILL")]


def test_deaths_count_only_while_nothing_comes_back(setup, played, monkeypatch):
    monkeypatch.setattr(workers, "KILLS", 2)
    acts = {"slow": [[part(setup, "slow", n), "killed"] for n in range(3)] + [[part(setup, "slow", 3), FINISHED]]}
    came, _ = played(acts, unit("slow", 0, 1, 2, 3))
    assert [said for _, _, said in came] == ["done by slow"] * 4


def test_a_unit_that_needs_too_much_memory_is_run_in_ever_smaller_lots(setup, played):
    acts = {"big": [[OVER_MEMORY], [OVER_MEMORY], [part(setup, "big", 0, 1, 2, 3), FINISHED]]}
    came, given = played(acts, unit("big", 0, 1, 2, 3))
    assert [c.at_once for c in given] == [None, 2, 1]
    assert len(came) == 4


def test_a_trial_that_needs_too_much_memory_alone_is_failed_with_the_reason(setup, played):
    came, _ = played({"huge": [[OVER_MEMORY], [OVER_MEMORY]]}, unit("huge", 0, 1))
    assert [said for _, _, said in came] == ["needs more memory than 1 GB"] * 2


def test_an_error_that_every_worker_would_meet_ends_the_run(setup, played):
    with pytest.raises(LeakgaugeError, match=r"^one clear line$"):
        played({"bad": [[packed(Refused("one clear line", expected=True))]]}, unit("bad", 0))
    with pytest.raises(RuntimeError, match="in a worker:\nTraceback"):
        played({"worse": [[packed(Refused("Traceback ...", expected=False))]]}, unit("worse", 0))


def test_no_more_processes_than_units_and_none_outlives_the_pool(setup, played, monkeypatch):
    started = []
    real = Workers.start
    monkeypatch.setattr(Workers, "start", lambda self: started.append(real(self)) or started[-1])
    played({"only": [[part(setup, "only", 0), FINISHED]]}, unit("only", 0), count=4)
    assert len(started) == 1
    assert not started[0].process.is_alive()


GREY = """
from dataclasses import dataclass
from typing import ClassVar
import torch
from leakgauge.types import Attack, Reconstruction

@dataclass(frozen=True)
class Grey(Attack):
    name: ClassVar[str] = "grey"
    summary: ClassVar[str] = "an attack in a file of its own"
    paper: ClassVar[str] = "none"
    needs: ClassVar[frozenset] = frozenset()

    def solve(self, problem, seeds, progress):
        count = torch.ones(len(seeds), dtype=torch.long)
        inputs = torch.stack([torch.full((1, 1, 8, 8), seed / 10) for seed in seeds])
        return Reconstruction(inputs, None, torch.tensor([float(s) for s in seeds]), count, count)
"""


def test_workers_and_this_process_give_the_same_numbers(tmp_path, monkeypatch):
    """Also with an attack of the user's own, a model that was trained before, and the ledger's changed setups."""
    (tmp_path / "grey.py").write_text(GREY)
    scenario = Scenario(
        data="digits",
        model="mlp:hidden=8",
        trials=3,
        attacks=("linear", f"{tmp_path}/grey.py:Grey"),
        ledger=True,
        training=Training(rounds=2),
    )
    monkeypatch.setitem(units.SIZES, "cpu", 2)

    def timeless(report):
        return dataclasses.replace(
            report,
            findings=tuple(dataclasses.replace(f, seconds=0.0) for f in report.findings),
            summary=tuple(dataclasses.replace(r, seconds=0.0) for r in report.summary),
            environment={},  # somebody may commit meanwhile
        )

    told = []
    alone, pictures = run_audit(scenario, device="cpu")
    shared, others = run_audit(scenario, device="cpu", workers=2, watch=lambda *now: told.append(now))
    assert timeless(shared) == timeless(alone)
    assert shared.environment["threads"] == "1"
    assert all(torch.equal(others.recovered[name], pictures.recovered[name]) for name in pictures.recovered)
    assert all(0 <= number < 4 and 0 <= share <= 1 and cells == 4 for number, cells, _, share in told)
    assert told[-1][0] + told[-1][3] == 4


def test_a_worker_that_has_no_room_for_the_setup_is_refused():
    tight = Workers(1, device="cpu", memory=50_000_000)
    with pytest.raises(BadInput, match=r"worker memory must be enough to load .* got 0.05 GB; raise --worker-memory"):
        run_audit(Scenario(data="digits", model="mlp:hidden=8", trials=1, attacks=("linear",)), executor=tight)


def test_what_was_loaded_in_python_stays_in_this_process():
    scenario = Scenario(data="digits", model="mlp:hidden=8", trials=1, attacks=("linear",))
    setup = load_setup(scenario, None, "cpu")
    with pytest.raises(BadInput, match="workers must be 0 for what was loaded in Python"):
        run_audit(dataclasses.replace(scenario, model=IN_PYTHON), setup=setup, workers=2)


@pytest.mark.parametrize(
    ("end", "starts", "why"),
    [
        ("os._exit(1)", 1, "a worker process ended with exit code 1 before it was ready; try without --workers"),
        ("os.kill(os.getpid(), 9)", 4, "4 worker processes in a row died before they were ready, the last by SIGKILL"),
    ],
)
def test_workers_that_end_before_they_are_ready_are_not_started_for_ever(
    setup, tmp_path, monkeypatch, end, starts, why
):
    (tmp_path / "short.py").write_text(f"import os\n\ndef begin(*_):\n    {end}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(workers, "begin", importlib.import_module("short").begin)
    monkeypatch.setattr(workers, "STARTS", 4)
    started, real = [], Workers.start
    monkeypatch.setattr(Workers, "start", lambda self: started.append(1) or real(self))
    pool = Scheduler(Workers(1, device="cpu"))
    with pytest.raises(LeakgaugeError, match=why):
        list(pool.run(setup, iter([unit("any", 0)]), Callbacks()))
    assert len(started) == starts
    sys.modules.pop("short")


def test_workers_of_another_setup_are_ended_and_others_load_the_new_one(setup):
    pool = Scheduler(Workers(1, device="cpu"))
    other = load_setup(dataclasses.replace(setup.scenario, seed=7), None, "cpu")
    wanted = [WorkUnit(s.key, 0, Cell(Linear(), "none", False, "linear"), (0,)) for s in (setup, other)]
    try:
        for given, asked in zip((setup, other), wanted, strict=True):
            ((_, there),) = pool.run(given, iter([asked]), Callbacks())
            (here,) = units.UnitRunner(given).parts(asked, Callbacks())
            assert torch.equal(there.trials[0].recovered, here.trials[0].recovered)
    finally:
        pool.close()


@pytest.mark.parametrize("count", [0, -1, 1.5, True])
def test_a_number_of_workers_is_a_whole_one(count):
    with pytest.raises(BadInput, match="workers must be a whole number from 1"):
        Workers(count, device="cpu")


def test_one_process_for_each_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert Workers(2, device="cuda")._free == ["cuda:0", "cuda:1"]
    assert Workers(1, device="cuda:1")._free == ["cuda:1"]
    with pytest.raises(BadInput, match="workers must be at most 2, one for each GPU, got 3"):
        Workers(3)


@pytest.mark.parametrize(
    ("text", "size"),
    [("4GB", 4 * 10**9), ("500 MB", 5 * 10**8), ("2GiB", 2**31), ("1.5g", 15 * 10**8), ("1000000", 10**6)],
)
def test_sizes_are_read_as_people_write_them(text, size):
    assert memory_from_text(text) == size


@pytest.mark.parametrize("text", ["", "GB", "4 apples", "-4GB", "0GB", "4XB", "IB"])
def test_other_sizes_are_refused(text):
    with pytest.raises(BadInput, match="--worker-memory must be a size such as 4GB"):
        memory_from_text(text)
