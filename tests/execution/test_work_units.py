"""Work units: the same bounds in every run, each lot of trials given back as soon as it is done."""

import dataclasses
import pickle

import pytest
import torch

from leakgauge.attacks.dlg import DLG
from leakgauge.attacks.ggl import GGL
from leakgauge.attacks.linear import Linear
from leakgauge.execution import batching
from leakgauge.execution import work_units as units
from leakgauge.execution.table_cell import run_cell
from leakgauge.execution.work_units import Callbacks, UnitRunner, WorkUnit, failed_part, units_of
from leakgauge.servers.class_fishing import ClassFishing
from leakgauge.setup.plan import Cell, OnDecoy
from leakgauge.setup.setup import load_setup
from leakgauge.types import Fact, Scenario

QUICK = DLG(steps=2, restarts=1, optimizer="adam")
CELL = Cell(QUICK, "none", False, "dlg")
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def setup():
    return load_setup(Scenario(data="digits", model="mlp:hidden=8", trials=5), None, "cpu")


def whole(*trials, **more):
    return WorkUnit("key", 0, CELL, trials, **more)


def bounds(left, trials, slots=1, device=CPU):
    return [c.trials for c in units_of("key", CELL, left, trials, device, slots, {})]


# --- where units begin and end ---------------------------------------------------------------------


def test_bounds_do_not_depend_on_what_is_finished_nor_on_who_runs_them():
    every = bounds(range(70), 70)
    assert [len(c) for c in every] == [32, 32, 6]
    assert bounds(range(70), 70, slots=4) == every
    assert bounds(range(32, 70), 70) == every[1:]
    assert bounds([3, 5, 40], 70) == [(3, 5), (40,)]


def test_a_gpu_takes_more_at_once():
    assert len(bounds(range(1000), 1000, device=torch.device("cuda"))) == 2


def test_numbers_stay_with_the_place():
    assert [c.number for c in units_of("key", CELL, [40, 69], 70, CPU, 1, {})] == [1, 2]


def test_the_rest_of_a_unit_is_the_same_unit():
    rest = whole(0, 1, 2, 3, time_share=0.8).without([0, 1])
    assert rest.trials == (2, 3)
    assert rest.name == whole(0).name
    assert rest.time_share == 0.4


# --- time -------------------------------------------------------------------------------------------


def test_a_time_budget_is_dealt_out_to_what_runs_one_after_another():
    alone = units_of("key", CELL, range(64), 64, CPU, 1, {})
    beside = units_of("key", CELL, range(64), 64, CPU, 4, {})
    assert [c.time_share for c in alone] == [0.5, 0.5]
    assert [c.time_share for c in beside] == [1.0, 1.0]


@pytest.mark.parametrize(
    ("attack", "left"),
    [
        (QUICK, None),
        (dataclasses.replace(QUICK, time_budget=10.0), 2.5),
        (OnDecoy(GGL(time_budget=10.0)), 2.5),
        (ClassFishing(time_budget=10.0), 10.0),  # of every single victim
        (Linear(), None),
    ],
)
def test_the_attack_gets_its_share_of_time(attack, left):
    shared = units._with_time(Cell(attack, "none", False, "x"), 0.25).attack
    inner = shared.attack if isinstance(shared, OnDecoy) else shared
    assert getattr(inner, "time_budget", None) == left


def test_a_finding_names_the_budget_that_was_asked_for(setup):
    asked = Cell(dataclasses.replace(QUICK, time_budget=60.0), "none", False, "dlg")
    (part,) = UnitRunner(setup).parts(WorkUnit("key", 0, asked, (0, 1), 0.5), Callbacks())
    assert part.trials[0].finding.spec == asked.attack.spec


# --- running ----------------------------------------------------------------------------------------


def test_a_unit_gives_what_the_cell_gives(setup):
    (part,) = UnitRunner(setup).parts(whole(*range(5)), Callbacks())
    findings, pictures = run_cell(setup, CELL, lambda _: None)
    assert part.whole
    assert [dataclasses.replace(t.finding, seconds=0.0) for t in part.trials] == [
        dataclasses.replace(f, seconds=0.0) for f in findings
    ]
    assert torch.equal(torch.stack([t.recovered for t in part.trials]), pictures)


def test_what_does_not_fit_together_comes_in_lots(setup, monkeypatch):
    monkeypatch.setattr(batching, "fitting", lambda *_: 2)
    told = []
    parts = list(UnitRunner(setup).parts(whole(*range(5)), Callbacks(lambda _, share: told.append(share))))
    assert [[t.finding.trial for t in p.trials] for p in parts] == [[0, 1], [2, 3], [4]]
    assert told == sorted(told)
    assert told[0] == 0
    assert told[-1] > 0.8


def test_fewer_at_once_if_so_many_were_too_many(setup):
    parts = list(UnitRunner(setup).parts(whole(0, 1, 2, at_once=1), Callbacks()))
    assert [len(p.trials) for p in parts] == [1, 1, 1]


def test_what_a_server_prepares_is_prepared_once_for_all_parts_of_a_cell(monkeypatch):
    prepared = []
    original = ClassFishing.prepare
    monkeypatch.setattr(ClassFishing, "prepare", lambda self, *a: prepared.append(1) or original(self, *a))
    scenario = Scenario(data="digits", model="mlp:hidden=8", trials=3, threat_model="malicious-parameters")
    runner = UnitRunner(load_setup(scenario, None, "cpu"))
    cell = Cell(ClassFishing(steps=1), "none", False, "class-fishing")
    parts = list(runner.parts(WorkUnit("key", 0, cell, (0, 1, 2)), Callbacks()))
    assert len(parts) == 3  # it asks again, so it meets one victim after another
    assert len(prepared) == 1


def test_a_changed_setup_is_that_of_the_unit_alone(setup):
    knowing = dataclasses.replace(setup.threat_model, facts=setup.threat_model.facts | {Fact.LABELS})
    runner = UnitRunner(setup)
    (told,) = runner.parts(whole(0, changes={"threat_model": knowing}), Callbacks())
    (not_told,) = runner.parts(whole(0), Callbacks())
    assert "labels-given" in told.trials[0].finding.flags
    assert "labels-given" not in not_told.trials[0].finding.flags


def test_an_attack_that_cannot_run_gives_failed_trials(setup):
    cell = Cell(ClassFishing(), "none", False, "class-fishing")  # the server may not change the model here
    parts = list(UnitRunner(setup).parts(WorkUnit("key", 0, cell, (0, 1)), Callbacks()))
    assert [t.finding.trial for p in parts for t in p.trials] == [0, 1]
    assert all("malicious" in t.finding.error for p in parts for t in p.trials)


def test_trials_that_were_given_up_stand_as_failed(setup):
    part = failed_part(setup, whole(1, 3), "no luck")
    assert [(t.finding.trial, t.finding.seed, t.finding.error) for t in part.trials] == [
        (1, 1, "no luck"),
        (3, 3, "no luck"),
    ]


def test_units_and_parts_travel(setup):
    (part,) = UnitRunner(setup).parts(whole(0), Callbacks())
    assert pickle.loads(pickle.dumps(whole(0, 1))) == whole(0, 1)
    assert pickle.loads(pickle.dumps(part)).trials[0].finding == part.trials[0].finding
