"""A configuration is settled once every record was recovered by attacks that beat their control."""

import dataclasses

import pytest

from leakgauge.audit.early_stop import stopped_by
from leakgauge.audit.run import run_audit
from leakgauge.setup.setup import load_setup
from leakgauge.types import Scenario

TINY = Scenario(data="digits", model="mlp:hidden=16", trials=3, attacks=("linear",), defenses=("gaussian:std=5",))


@pytest.fixture(scope="module")
def ran():
    report, pictures = run_audit(TINY)
    return load_setup(TINY, None, "cpu"), report.findings, pictures.recovered


def test_all_records_recovered_settles_it(ran):
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


def test_several_attacks_may_settle_it_together(ran):
    setup, findings, recovered = ran
    split = [
        dataclasses.replace(f, attack="other") if (f.attack, f.defense, f.trial) == ("linear", "none", 1) else f
        for f in findings
    ]
    assert stopped_by(setup, split, recovered, "none") == ("linear", "other")


def test_what_is_not_credible_settles_nothing(ran, monkeypatch):
    setup, findings, recovered = ran
    monkeypatch.setattr("leakgauge.audit.early_stop.is_recovered", lambda *_: False)
    assert stopped_by(setup, findings, recovered, "none") == ()


def test_a_suite_skips_what_is_settled_and_says_so(small_suite, tmp_path):
    small_suite("quick", 2, ("labels", "linear", "peeling", "idlg:steps=2"), ("imprint",))
    report, _ = run_audit(dataclasses.replace(TINY, attacks=(), defenses=()), out=tmp_path)
    assert [r.attack for r in report.summary if r.floor] == ["labels", "linear"]
    said = {s.attack: (s.defense, s.why) for s in report.skipped}
    assert said["idlg"] == ("none", "settled by linear: every record was recovered")
    assert said["peeling"] == said["idlg"]
    assert "may not change the model" in said["imprint"][1]
    again, _ = run_audit(dataclasses.replace(TINY, attacks=(), defenses=()), out=tmp_path)
    assert (again.findings, again.skipped) == (report.findings, report.skipped)
