"""One cell: on some trials or all, cut off in the middle, resumed; finished trials are never run twice."""

import dataclasses

import pytest
import torch

from leakgauge.attacks.dlg import DLG
from leakgauge.attacks.ggl import GGL
from leakgauge.attacks.linear import Linear
from leakgauge.audit.run import run_audit
from leakgauge.execution import batching
from leakgauge.execution.store import Store
from leakgauge.execution.table_cell import compared, run_cell
from leakgauge.setup.plan import Cell, OnDecoy
from leakgauge.setup.setup import load_setup
from leakgauge.types import Reconstruction, Scenario

SPEC = "dlg:steps=1,restarts=1,optimizer=adam"  # two evaluations
NAME = "dlg | none | plain"
PLANNED = Scenario(data="digits", model="mlp:hidden=8", trials=4, attacks=(SPEC,))


@pytest.fixture(scope="module")
def setup():
    return load_setup(PLANNED, None, "cpu")


@pytest.fixture
def fit(monkeypatch):
    """fit(n): so many trials fit at once."""

    def at_once(count):
        monkeypatch.setattr(batching, "fitting", lambda *_: count)

    return at_once


@pytest.fixture
def ran(monkeypatch) -> list[int]:
    """The seeds of all trials that DLG was run on, in order."""
    seeds: list[int] = []
    original = DLG.solve

    def noting(self, observation, its_seeds, progress):
        seeds.extend(its_seeds)
        return original(self, observation, its_seeds, progress)

    monkeypatch.setattr(DLG, "solve", noting)
    return seeds


def cell(attack=None) -> Cell:
    attack = attack or DLG(steps=1, restarts=1, optimizer="adam")
    return Cell(attack, "none", False, attack.name)


def quiet(_: float) -> None:
    pass


def stop_at(share: float):
    """Somebody who presses Ctrl-C when so much of the DLG cell is done."""

    def watch(number, cells, name, done):
        if name == NAME and done >= share:
            raise KeyboardInterrupt

    return watch


def timeless(report):
    return [dataclasses.replace(f, seconds=0.0) for f in report.findings]


def of_dlg(report):
    return [f for f in report.findings if f.attack == "dlg"]


# --- some trials of a cell --------------------------------------------------------------------------


def test_all_trials_are_run_unless_some_are_asked_for(setup, ran):
    findings, pictures = run_cell(setup, cell(), quiet)
    assert [f.trial for f in findings] == [0, 1, 2, 3]
    assert pictures.shape == setup.batch.inputs.shape
    assert ran == list(setup.scenario.seeds)


def test_some_trials_get_their_own_seed_their_own_truth_and_their_place(setup, fit, ran):
    fit(1)
    whole, all_pictures = run_cell(setup, cell(), quiet)
    ran.clear()
    some, pictures = run_cell(setup, cell(), quiet, [1, 3])
    assert ran == [setup.scenario.seeds[1], setup.scenario.seeds[3]]
    for found, expected in zip(some, (whole[1], whole[3]), strict=True):
        assert dataclasses.replace(found, seconds=0.0) == dataclasses.replace(expected, seconds=0.0)
    assert torch.equal(pictures, all_pictures[[1, 3]])


def test_a_finding_keeps_the_way_of_its_objective_in_a_few_values(setup):
    (found, *_), _ = run_cell(setup, cell(DLG(steps=300, restarts=1, optimizer="adam")), quiet, [0])
    assert 5 < len(found.trace) <= 24
    assert list(found.trace) == sorted(found.trace, reverse=True)  # the best so far
    assert found.trace[-1] == pytest.approx(found.objective, rel=1e-3)
    floor, _ = run_cell(setup, cell(Linear()), quiet, [0])
    assert floor[0].trace == ()


def test_trials_that_could_not_run_are_failed_by_their_own_number(setup, monkeypatch):
    def too_big(*_):
        raise torch.OutOfMemoryError("too big")

    monkeypatch.setattr(Linear, "solve", too_big)
    findings, pictures = run_cell(setup, cell(Linear()), quiet, [2, 3])
    assert [(f.trial, f.seed, f.error) for f in findings] == [(t, setup.scenario.seeds[t], "too big") for t in (2, 3)]
    assert pictures is None


def test_an_error_in_the_code_is_not_hidden_as_a_failed_trial(setup, monkeypatch):
    def broken(*_):
        raise RuntimeError("shapes do not fit")

    monkeypatch.setattr(Linear, "solve", broken)
    with pytest.raises(RuntimeError, match="shapes"):
        run_cell(setup, cell(Linear()), quiet)


def test_only_the_trials_that_an_interrupt_left_whole_are_found(setup, monkeypatch):
    def cut_off(self, observation, seeds, progress):
        count = torch.ones(len(seeds), dtype=torch.long)
        finished = torch.tensor([False, True, False, True])
        inputs = torch.arange(4.0).view(4, 1, 1, 1, 1).expand(4, 1, 1, 8, 8) / 4
        return Reconstruction(inputs, None, torch.arange(4.0), count, count, finished=finished)

    monkeypatch.setattr(Linear, "solve", cut_off)
    findings, pictures = run_cell(setup, cell(Linear()), quiet)
    assert [(f.trial, f.objective) for f in findings] == [(1, 1.0), (3, 3.0)]
    assert [picture.mean().item() for picture in pictures] == [0.25, 0.75]


def test_if_no_trial_was_finished_the_interrupt_is_passed_on(setup):
    def stop(_: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_cell(setup, cell(), stop)


def test_a_spent_time_budget_is_flagged(setup):
    findings, _ = run_cell(setup, cell(DLG(steps=10**5, restarts=99, threshold=1e-30, time_budget=0.1)), quiet)
    assert all("time-budget-spent" in f.flags for f in findings)
    findings, _ = run_cell(setup, cell(DLG(steps=1, restarts=1, optimizer="adam", time_budget=600.0)), quiet)
    assert not any("time-budget-spent" in f.flags for f in findings)


# --- through the audit: cut off and resumed ---------------------------------------------------------


def test_an_interrupt_in_the_middle_of_a_cell_keeps_its_finished_trials_and_a_resume_runs_the_rest(tmp_path, fit, ran):
    fit(1)
    uninterrupted, pictures = run_audit(PLANNED)
    ran.clear()
    halted, _ = run_audit(PLANNED, out=tmp_path, watch=stop_at(0.5))
    assert halted.interrupted
    assert [f.trial for f in of_dlg(halted)] == [0, 1]
    assert next(r for r in halted.summary if r.attack == "dlg").trials == 2

    ran.clear()
    resumed, again = run_audit(PLANNED, out=tmp_path)
    assert not resumed.interrupted
    assert ran == list(PLANNED.seeds[2:])  # what was finished is not run again
    assert timeless(resumed) == timeless(uninterrupted)
    assert [(r.metrics, r.success_rate) for r in resumed.summary] == [
        (r.metrics, r.success_rate) for r in uninterrupted.summary
    ]
    assert torch.equal(again.recovered[NAME], pictures.recovered[NAME])

    ran.clear()
    third, _ = run_audit(PLANNED, out=tmp_path)
    assert ran == []
    assert third.findings == resumed.findings


def test_trials_that_ended_before_an_interrupt_are_reported_and_run_again_among_the_others_they_had(tmp_path, ran):
    """All trials at once: they leave one by one as they are solved. Alone, the others would not round alike."""
    planned = dataclasses.replace(
        PLANNED, model="mlp:hidden=32,activation=sigmoid", attacks=("dlg:steps=40,restarts=1",)
    )
    whole, _ = run_audit(planned)
    last = sorted(f.steps for f in of_dlg(whole))
    assert last[0] < last[-1], "needs trials that end at different times"
    halted, _ = run_audit(planned, out=tmp_path, watch=stop_at((last[-1] - 1.5) / 40))  # one step before the last ends
    assert halted.interrupted
    assert 0 < len(of_dlg(halted)) < 4
    ran.clear()
    resumed, _ = run_audit(planned, out=tmp_path)
    assert ran == list(planned.seeds)
    assert timeless(resumed) == timeless(whole)


def test_a_cell_may_be_interrupted_again_and_again(tmp_path, fit, ran):
    fit(1)
    for share in (0.25, 0.34, 0.5):  # one trial each time: of 4, of 3 left, of 2 left
        run_audit(PLANNED, out=tmp_path, watch=stop_at(share))
    resumed, _ = run_audit(PLANNED, out=tmp_path)
    assert ran.count(PLANNED.seeds[0]) == 1
    assert timeless(resumed) == timeless(run_audit(PLANNED)[0])


def test_fresh_runs_every_trial_of_a_cell_that_was_cut_off(tmp_path, fit, ran):
    fit(1)
    run_audit(PLANNED, out=tmp_path, watch=stop_at(0.5))
    ran.clear()
    run_audit(PLANNED, out=tmp_path, fresh=True)
    assert ran == list(PLANNED.seeds)


def test_the_pictures_of_a_cell_that_was_cut_off_are_blank_where_it_was_not_run(tmp_path, fit):
    fit(1)
    run_audit(PLANNED, out=tmp_path, watch=stop_at(0.5), keep_private=True)
    recovered = Store(tmp_path).pictures().recovered[NAME]
    assert (recovered[:2] != 0).any()
    assert (recovered[2:] == 0).all()


def test_an_interrupt_before_a_resumed_cell_gets_anywhere_still_reports_what_it_had(tmp_path, fit, monkeypatch):
    def halt(*_):
        raise KeyboardInterrupt

    fit(1)
    run_audit(PLANNED, out=tmp_path, watch=stop_at(0.5))
    monkeypatch.setattr(DLG, "solve", halt)
    again, _ = run_audit(PLANNED, out=tmp_path)
    assert again.interrupted
    assert [f.trial for f in of_dlg(again)] == [0, 1]


def test_what_could_not_run_after_an_interrupt_is_tried_again(tmp_path, fit, monkeypatch):
    def too_big(*_):
        raise torch.OutOfMemoryError("too big")

    fit(1)
    run_audit(PLANNED, out=tmp_path, watch=stop_at(0.5))
    with monkeypatch.context() as patch:
        patch.setattr(DLG, "solve", too_big)
        run_audit(PLANNED, out=tmp_path)
    last, _ = run_audit(PLANNED, out=tmp_path)
    assert [f.error for f in of_dlg(last)] == [None] * 4


# --- the control of an attack that draws on a prior --------------------------------------------------

FITS = GGL(steps=60, restarts=1)


def control_of(attack) -> Cell:
    return Cell(OnDecoy(attack), "none", False, f"{attack.name} on a decoy")


def beside(setup, cell, control):
    """The findings of a cell, compared with those of its control as an audit does it."""
    return compared(setup, cell, run_cell(setup, cell, quiet)[0], control)


def test_a_control_is_marked_and_scored_against_the_true_victims(setup):
    control, pictures = run_cell(setup, control_of(FITS), quiet)
    real = beside(setup, cell(FITS), control)
    assert all(f.is_decoy for f in control)
    assert not any(f.is_decoy for f in real)
    assert [f.scores["label_accuracy"] for f in control] == [1.0] * 4  # the decoy has the victim's label
    truth = setup.batch.inputs
    for f, picture in zip(control, pictures, strict=True):
        assert f.scores["mse"] == pytest.approx(float((picture - truth[f.trial]).square().mean()), rel=1e-3)
    assert all(a.scores["ssim"] > b.scores["ssim"] + 0.1 for a, b in zip(real, control, strict=True))
    assert not any("no-better-than-decoy" in f.flags for f in real)


def test_what_does_not_beat_its_control_is_flagged(setup):
    control, _ = run_cell(setup, control_of(FITS), quiet)
    real = beside(setup, cell(FITS), control)
    better = [dataclasses.replace(f, scores={**f.scores, "ssim": 0.9999 if f.trial == 2 else -1.0}) for f in control]
    again = beside(setup, cell(GGL(steps=1, restarts=1)), better)
    assert ["no-better-than-decoy" in f.flags for f in again] == [False, False, True, False]
    elsewhere = [dataclasses.replace(f, defense="prune") for f in better]
    again = beside(setup, cell(GGL(steps=1, restarts=1)), elsewhere)
    assert not any("no-better-than-decoy" in f.flags for f in again)
    assert real[0].spec == "ggl:steps=60,restarts=1"


def test_an_attack_that_ignores_the_update_is_no_better_than_its_control(setup, monkeypatch):
    """The prior alone: the same picture whatever was sent."""

    def blind(self, observation, seeds, progress):
        count = torch.ones(len(seeds), dtype=torch.long)
        return Reconstruction(torch.full((len(seeds), 1, 1, 8, 8), 0.3), None, torch.ones(len(seeds)), count, count)

    monkeypatch.setattr(GGL, "solve", blind)
    control, _ = run_cell(setup, control_of(GGL()), quiet)
    real = beside(setup, cell(GGL()), control)
    assert all("no-better-than-decoy" in f.flags for f in real)


def test_a_control_that_cannot_run_is_marked_as_one_and_holds_nothing_up(setup):
    bare = dataclasses.replace(setup, public=None)
    findings, pictures = run_cell(bare, control_of(FITS), quiet)
    assert pictures is None
    assert all(f.is_decoy and "not applicable" in f.error for f in findings)


def test_control_and_attack_are_stored_side_by_side(tmp_path, monkeypatch):
    planned = dataclasses.replace(PLANNED, trials=2, attacks=("ggl:steps=2,restarts=1",))
    first, _ = run_audit(planned, out=tmp_path)
    assert [(f.attack, f.is_decoy) for f in first.findings[-4:]] == [
        ("ggl on a decoy", True),
        ("ggl on a decoy", True),
        ("ggl", False),
        ("ggl", False),
    ]
    monkeypatch.setattr(GGL, "solve", None)  # nothing is run again
    again, _ = run_audit(planned, out=tmp_path)
    assert again.findings == first.findings
