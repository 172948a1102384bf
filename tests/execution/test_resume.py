"""What is missing is run, kept at once, and never twice, also by two that share a run directory."""

import dataclasses

import pytest

from leakgauge.attacks.dlg import DLG
from leakgauge.attacks.linear import Linear
from leakgauge.errors import BadInput
from leakgauge.execution import work_units as units
from leakgauge.execution.resume import Resume, Work
from leakgauge.execution.scheduler import InProcess, Scheduler
from leakgauge.execution.store import Store
from leakgauge.setup.plan import Cell
from leakgauge.setup.setup import load_setup
from leakgauge.types import Scenario

QUICK = DLG(steps=2, restarts=1, optimizer="adam")
TRIALS = 6


@pytest.fixture(scope="module")
def setup():
    return load_setup(Scenario(data="digits", model="mlp:hidden=8", trials=TRIALS), None, "cpu")


@pytest.fixture(autouse=True)
def small_units(monkeypatch):
    monkeypatch.setitem(units.SIZES, "cpu", 2)


class Noting(Scheduler):
    """Notes which trials it was given; `before` is called ahead of each unit."""

    def __init__(self, before=lambda _: None):
        super().__init__(InProcess())
        self.ran = []
        self.before = before

    def run(self, setup, units, callbacks):
        def noted():
            for unit in units:
                self.before(unit)
                self.ran.append((unit.key, unit.trials))
                yield unit

        return super().run(setup, noted(), callbacks)


def works(*names):
    made = {"dlg": QUICK, "linear": Linear()}
    return [Work(name, Cell(made[name], "none", False, name), name) for name in names]


def quiet(*_):
    pass


def timeless(work):
    return [dataclasses.replace(f, seconds=0.0) for f in work.findings]


@pytest.fixture(scope="module")
def expected(setup):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(units.SIZES, "cpu", 2)
        both = works("dlg", "linear")
        Resume(setup, None, Scheduler(InProcess())).finish(both, quiet)
    return {work.key: timeless(work) for work in both}


def test_everything_is_run_once_and_kept(setup, tmp_path, expected):
    store, scheduler, both = Store(tmp_path), Noting(), works("dlg", "linear")
    Resume(setup, store, scheduler).finish(both, quiet)
    assert scheduler.ran == [(name, pair) for name in ("dlg", "linear") for pair in ((0, 1), (2, 3), (4, 5))]
    assert {w.key: timeless(w) for w in both} == expected
    again, idle = works("dlg", "linear"), Noting()
    Resume(setup, Store(tmp_path), idle).finish(again, quiet)
    assert idle.ran == []
    assert [w.findings for w in again] == [w.findings for w in both]


@pytest.mark.parametrize("done", range(6))
def test_killed_at_any_unit_the_rest_is_run_and_the_numbers_are_the_same(setup, tmp_path, expected, done):
    def stop(_):
        if len(dying.ran) == done:
            raise MemoryError  # whatever ends the process

    dying = Noting(stop)
    with pytest.raises(MemoryError):
        Resume(setup, Store(tmp_path), dying).finish(works("dlg", "linear"), quiet)
    going_on, both = Noting(), works("dlg", "linear")
    Resume(setup, Store(tmp_path), going_on).finish(both, quiet)
    assert len(dying.ran) + len(going_on.ran) == 6
    assert not set(dying.ran) & set(going_on.ran)
    assert {w.key: timeless(w) for w in both} == expected


def test_two_on_one_directory_share_the_work(setup, tmp_path, expected):
    """The second comes while the first is at its second unit, does all that is free, and waits for that one."""
    second, theirs = Noting(), works("dlg", "linear")
    looked = []

    def let_the_other_run(unit):
        if unit.key == "dlg" and unit.number == 1 and not looked:
            looked.append(unit)
            with pytest.raises(_Waited):
                Resume(setup, Store(tmp_path), second).finish(theirs, quiet)

    class _Waited(Exception):
        pass

    def waits(_):
        raise _Waited

    first, mine = Noting(let_the_other_run), works("dlg", "linear")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("leakgauge.execution.resume.time.sleep", waits)
        Resume(setup, Store(tmp_path), first).finish(mine, quiet)
    assert first.ran == [("dlg", (0, 1)), ("dlg", (2, 3))]
    assert sorted(second.ran) == [("dlg", (4, 5)), *(("linear", pair) for pair in ((0, 1), (2, 3), (4, 5)))]
    assert {w.key: timeless(w) for w in mine} == expected
    Resume(setup, Store(tmp_path), second).finish(theirs, quiet)
    assert {w.key: timeless(w) for w in theirs} == expected


def test_a_damaged_file_costs_its_own_trials_only(setup, tmp_path, expected):
    Resume(setup, Store(tmp_path), Scheduler(InProcess())).finish(works("dlg"), quiet)
    path = sorted((tmp_path / "cells").glob("*.safetensors"))[1]
    path.write_bytes(path.read_bytes()[:-3])
    told, scheduler, (work,) = [], Noting(), works("dlg")
    Resume(setup, Store(tmp_path, notice=told.append), scheduler).finish([work], quiet)
    assert scheduler.ran == [("dlg", (2, 3))]
    assert timeless(work) == expected["dlg"]
    assert str(path) in told[0]


def test_a_damaged_index_costs_no_trial(setup, tmp_path, expected):
    Resume(setup, Store(tmp_path), Scheduler(InProcess())).finish(works("dlg"), quiet)
    (tmp_path / "index.sqlite").write_bytes(b"overwritten by something that is no database " * 100)
    scheduler, (work,) = Noting(), works("dlg")
    Resume(setup, Store(tmp_path), scheduler).finish([work], quiet)
    assert scheduler.ran == []
    assert timeless(work) == expected["dlg"]


def test_a_full_disk_stops_the_run_which_goes_on_once_there_is_room(setup, tmp_path, expected, monkeypatch):
    store, saved = Store(tmp_path), []
    real = Store.save

    def full(self, *given):
        if len(saved) == 2:
            raise BadInput("output", allowed="writable", got="No space left on device", do="free some")
        saved.append(given)
        real(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "save", full)
        with pytest.raises(BadInput, match="No space left"):
            Resume(setup, store, Scheduler(InProcess())).finish(works("dlg"), quiet)
    scheduler, (work,) = Noting(), works("dlg")
    Resume(setup, Store(tmp_path), scheduler).finish([work], quiet)
    assert scheduler.ran == [("dlg", (4, 5))]
    assert timeless(work) == expected["dlg"]


def test_what_failed_is_told_but_not_kept(setup, tmp_path, monkeypatch):
    def too_big(*_):
        raise RuntimeError("not enough memory")

    with monkeypatch.context() as patch:
        patch.setattr(Linear, "solve", too_big)
        (work,) = works("linear")
        Resume(setup, Store(tmp_path), Scheduler(InProcess())).finish([work], quiet)
    assert [f.error for f in work.findings] == ["not enough memory"] * TRIALS
    assert Store(tmp_path).load("linear") == {}


def test_what_is_on_disk_gets_the_name_it_has_in_this_table(setup, tmp_path):
    """A second version of an attack gives both a longer name, and none has to be run again."""
    Resume(setup, Store(tmp_path), Scheduler(InProcess())).finish(works("linear"), quiet)
    idle, renamed = Noting(), Work("linear", Cell(Linear(), "none", False, "linear:longer"), "linear")
    Resume(setup, Store(tmp_path), idle).finish([renamed], quiet)
    assert idle.ran == []
    assert {f.attack for f in renamed.findings} == {"linear:longer"}


def test_progress_goes_up_to_the_end_whatever_was_there_before(setup, tmp_path):
    def told(works):
        seen = []
        Resume(setup, Store(tmp_path), Scheduler(InProcess())).finish(works, lambda *now: seen.append(now))
        return seen

    first = told(works("dlg", "linear"))
    assert [name for _, _, name, _ in first] == sorted((name for _, _, name, _ in first), key="dlg linear".index)
    assert all(0 <= number < 2 and 0 <= share <= 1 and cells == 2 for number, cells, _, share in first)
    at = [number + share for number, _, _, share in first]
    assert at == sorted(at)
    assert told(works("dlg", "linear")) == [(0, 2, "dlg", 1.0), (1, 2, "linear", 1.0)]


def test_what_every_part_says_is_told_once(setup, monkeypatch):
    def say(self, unit, told):
        told.notice("beware")
        return real(self, unit, told)

    real = units.UnitRunner.parts
    monkeypatch.setattr(units.UnitRunner, "parts", say)
    lines = []
    Resume(setup, None, Scheduler(InProcess()), lines.append).finish(works("linear"), quiet)
    assert lines == ["beware"]
