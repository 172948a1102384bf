"""Seconds become time budgets and steps: shares of what is left, more for what suits the network."""

import dataclasses

import pytest

from leakgauge.attacks.ggl import GGL
from leakgauge.attacks.idlg import IDLG
from leakgauge.attacks.inverting_gradients import InvertingGradients
from leakgauge.attacks.linear import Linear
from leakgauge.audit.budget import Budget, budget_of, searches, seconds_per_evaluation, stopped_by
from leakgauge.audit.run import run_audit
from leakgauge.recording.triage import first_observation
from leakgauge.servers.class_fishing import ClassFishing
from leakgauge.setup.plan import Cell, OnDecoy
from leakgauge.setup.setup import load_setup
from leakgauge.types import Scenario


def cell(attack, defense="none"):
    return Cell(attack, defense, False, attack.name)


IG, NEWTON = cell(InvertingGradients(steps=1000)), cell(IDLG())


@pytest.fixture
def seen():
    setup = load_setup(Scenario(data="digits", model="mlp:hidden=8", trials=2), None, "cpu")
    return first_observation(setup, (0, 1))


def test_what_does_not_search_is_left_alone():
    assert not searches(Linear())
    assert Budget(10, 0.01, True).allotted(cell(Linear()), []).attack == Linear()


def test_time_is_shared_among_the_searches_of_one_configuration_only():
    later = [IG, cell(InvertingGradients(), "prune"), cell(Linear())]
    allotted = Budget(10, 0.0, smooth=False).allotted(IG, later)
    assert allotted.attack.time_budget == pytest.approx(5, abs=0.1)
    assert allotted.attack.steps == 1000, "nothing is known of the cost of a step"


def test_another_configuration_has_its_own_time():
    budget = Budget(10, 0.0, smooth=False)
    budget.allotted(IG, [IG, IG, IG])
    assert budget.allotted(cell(InvertingGradients(), "prune"), []).attack.time_budget == pytest.approx(10, abs=0.1)


@pytest.mark.parametrize(("smooth", "more", "less"), [(True, NEWTON, IG), (False, IG, NEWTON)])
def test_what_suits_the_network_gets_more(smooth, more, less):
    assert Budget(8, 0.0, smooth).allotted(more, [less]).attack.time_budget == pytest.approx(6, abs=0.1)
    assert Budget(8, 0.0, smooth).allotted(less, [more]).attack.time_budget == pytest.approx(2, abs=0.1)


def test_who_knows_the_defense_gets_more():
    plain = cell(InvertingGradients(), "prune")
    informed = Cell(InvertingGradients(), "prune", True, "inverting-gradients")
    assert Budget(9, 0.0, False).allotted(plain, [informed]).attack.time_budget == pytest.approx(3, abs=0.1)


def test_steps_are_no_more_than_fit_and_no_more_than_asked_for():
    assert Budget(10, 0.1, False).fitted(InvertingGradients(steps=1000), 20).steps == 200
    assert Budget(10, 1e-5, False).fitted(InvertingGradients(steps=1000), 20).steps == 1000
    assert Budget(10, 100, False).fitted(InvertingGradients(steps=1000), 1).steps == 60, "the clock stops it, not this"
    assert Budget(10, 100, False).fitted(IDLG(steps=70), 1).steps == 70, "its steps do not shape the search"


def test_a_server_that_asks_again_has_its_time_once_for_each_victim():
    assert Budget(10, 0.0, False, trials=4).fitted(ClassFishing(), 8).time_budget == 2


def test_a_control_gets_what_its_attack_gets():
    budget = Budget(10, 0.0, False)
    control = Cell(OnDecoy(GGL()), "none", False, "ggl on a decoy")
    assert budget.allotted(control, [cell(GGL())]).attack.attack.time_budget == pytest.approx(5, abs=0.1)


def test_the_cost_of_a_step_is_the_difference_of_two_looks(seen):
    times = iter([0.0, 1.0, 10.0, 14.0])
    assert seconds_per_evaluation(seen, (0, 1), lambda: next(times)) == pytest.approx(3 / 6)


def test_one_look_is_enough_where_steps_are_slow(seen):
    times = iter([0.0, 20.0])
    assert seconds_per_evaluation(seen, (0, 1), lambda: next(times)) == 10


def test_the_pace_of_a_real_update(seen):
    fitted = budget_of(5, seen, (0, 1)).fitted(InvertingGradients(), 5)
    assert fitted.time_budget == 5
    assert 60 <= fitted.steps <= 4800


# --- a configuration whose every record was recovered needs no further attack -----------------------

TINY = Scenario(data="digits", model="mlp:hidden=16", trials=3, attacks=("linear",), defenses=("gaussian:std=5",))


@pytest.fixture(scope="module")
def ran():
    report, pictures = run_audit(TINY)
    return load_setup(TINY, None, "cpu"), report.findings, pictures.recovered


def test_all_records_recovered_ends_it(ran):
    assert stopped_by(*ran, "none") == ("linear",)
    assert stopped_by(*ran, "gaussian:std=5") == ()


def test_one_record_left_does_not(ran):
    setup, findings, recovered = ran
    worse = [
        dataclasses.replace(f, records=({"ssim": 0.1, "psnr": 5.0, "mse": 0.3},))
        if (f.attack, f.defense, f.trial) == ("linear", "none", 1)
        else f
        for f in findings
    ]
    assert stopped_by(setup, worse, recovered, "none") == ()


def test_several_attacks_may_end_it_together(ran):
    setup, findings, recovered = ran
    split = [
        dataclasses.replace(f, attack="other") if (f.attack, f.defense, f.trial) == ("linear", "none", 1) else f
        for f in findings
    ]
    assert stopped_by(setup, split, recovered, "none") == ("linear", "other")


def test_what_is_not_credible_ends_nothing(ran, monkeypatch):
    setup, findings, recovered = ran
    monkeypatch.setattr("leakgauge.audit.budget.is_recovered", lambda *_: False)
    assert stopped_by(setup, findings, recovered, "none") == ()


def test_a_suite_skips_what_is_not_needed_and_says_so(small_suite, tmp_path):
    small_suite("quick", 2, ("labels", "linear", "peeling", "idlg:steps=2"), ("imprint",))
    report, _ = run_audit(dataclasses.replace(TINY, attacks=(), defenses=()), out=tmp_path)
    assert [r.attack for r in report.summary if r.floor] == ["labels", "linear"]
    said = {s.attack: (s.defense, s.why) for s in report.skipped}
    assert said["idlg"] == ("none", "not needed: linear recovered every record")
    assert said["peeling"] == said["idlg"]
    assert "may not change the model" in said["imprint"][1]
    again, _ = run_audit(dataclasses.replace(TINY, attacks=(), defenses=()), out=tmp_path)
    assert (again.findings, again.skipped) == (report.findings, report.skipped)
