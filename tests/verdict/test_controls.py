"""What is put beside the scores of a whole audit: controls, places, exposure, the upper side."""

import dataclasses
import json

import pytest

from leakgauge.audit.run import run_audit
from leakgauge.report import from_json, to_json
from leakgauge.types import Scenario

TINY = Scenario(data="digits", model="mlp:hidden=16", trials=6, attacks=("linear",))
GGL = "ggl:steps=60,restarts=1"


@pytest.fixture(scope="module")
def noisy():
    return run_audit(dataclasses.replace(TINY, defenses=("gaussian:std=5",)))[0]


def row(report, attack, defense="none", adaptive=False):
    return next(r for r in report.summary if (r.attack, r.defense, r.adaptive) == (attack, defense, adaptive))


def test_exact_recoveries_come_first_among_others_of_their_label(noisy):
    found = row(noisy, "linear").control
    assert (found.first, found.records, found.same_label, found.better) == (6, 6, True, True)
    assert found.p_mean < 0.001
    assert all(f.ranks == (1.0,) for f in noisy.findings if f.attack == "linear" and f.defense == "none")


def test_what_noise_leaves_is_no_better_than_the_control_and_is_flagged(noisy):
    found = row(noisy, "linear", "gaussian:std=5")
    assert found.control.better is False
    assert "no-better-than-control" in found.flags
    assert "no-better-than-control" in {f.id for f in noisy.flags}


def test_floors_have_no_control(noisy):
    assert row(noisy, "mean-image").control is None


def test_a_generator_on_a_decoy_gradient_is_no_better_than_the_control():
    """Its pictures may pass the criterion; they show the label and the prior, not the victim."""
    report, _ = run_audit(dataclasses.replace(TINY, model="lenet-dlg", attacks=(GGL,)))
    decoy, real = row(report, "ggl on a decoy"), row(report, "ggl")
    assert "no-better-than-control" in decoy.flags
    assert real.control.better
    assert "no-better-than-control" not in real.flags
    assert real.control.first == 6


def test_exposure_is_told_for_every_configuration(noisy):
    assert [e.defense for e in noisy.exposure] == ["none", "gaussian:std=5"]
    bare, hidden = (e.alignment for e in noisy.exposure)
    assert all(value == pytest.approx(1, abs=1e-5) for trial in bare for value in trial)
    assert all(abs(value) < 0.3 for trial in hidden for value in trial)


def test_a_report_with_all_of_it_reads_back_equal(noisy):
    assert from_json(to_json(noisy)) == noisy
    plain = json.loads(to_json(noisy))
    assert {"tail", "control"} <= set(plain["summary"][-1])
    assert {"lower", "upper", "standing", "sides"} <= set(plain["verdict"]["configurations"][-1])


def test_a_report_from_before_reads_without_it(noisy):
    plain = json.loads(to_json(noisy))
    del plain["digest"]
    plain.pop("exposure")
    for finding in plain["findings"]:
        del finding["ranks"], finding["certified"]
    for found in plain["summary"]:
        del found["tail"], found["control"]
    old = from_json(json.dumps(plain))
    assert old.exposure == ()
    assert old.summary[-1].control is None
    assert old.findings[-1].ranks == ()


def test_a_resumed_run_has_the_same_controls(tmp_path):
    first, again = (run_audit(TINY, out=tmp_path)[0] for _ in range(2))
    assert first.summary == again.summary
    assert first.findings == again.findings


def test_data_with_nothing_to_spare_has_no_control(tmp_path):
    report, _ = run_audit(dataclasses.replace(TINY, trials=9, batch_size=50))
    assert row(report, "linear").control is None


def test_a_sum_of_clients_has_no_control():
    chain = "secure-aggregation:clients=2"
    report, _ = run_audit(dataclasses.replace(TINY, defenses=(chain,)))
    assert row(report, "linear", chain).control is None


def test_a_bound_needs_a_measured_blind_guess():
    report, _ = run_audit(dataclasses.replace(TINY, defenses=("dp-sgd:sigma=4",)))
    upper = report.verdict.configurations[1].upper
    assert upper.guaranteed
    assert upper.kappa.records == 444  # private digits that nobody attacks
    assert upper.gamma > upper.kappa.high > upper.kappa.value
    assert not report.verdict.configurations[0].upper.guaranteed
