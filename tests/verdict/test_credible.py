"""What a good score is worth: nearer than the floors, and unmistakable or with a control that convinces."""

import dataclasses
import json

import pytest

from leakgauge.audit.run import run_audit
from leakgauge.report import from_json, to_json
from leakgauge.types import Control, DataSpec, Finding, Scenario, cell_name
from leakgauge.verdict.credible import is_recovered, is_undecided, judged

IMAGE = DataSpec("pictures", (1, 8, 8), 10, "image")
TABLE = DataSpec("table", (30,), 2, "tabular")
CONVINCES = Control(39, True, 6, 6, 1.0, 1e-4, 1e-4, True, 1e-9, True)
GOOD = {"ssim": 0.8, "psnr": 20.0, "detail": 3.0, "mse": 0.01}
CELL = cell_name("dlg", "none", False)


def finding(record=GOOD, attack="dlg", ranks=(1.0,), **more) -> Finding:
    return Finding(attack, "none", False, 0, 0, dict(record), (record,), ranks=ranks, **more)


def floor(**scores) -> Finding:
    return finding(scores, "mean-image", ())


def told(*findings, control=CONVINCES, data=IMAGE) -> Finding:
    return judged(findings, data, {} if control is None else {CELL: control})[0]


def test_nearer_than_the_floors_with_a_control_that_convinces_is_recovered():
    assert is_recovered(IMAGE, told(finding(), floor(ssim=0.7, psnr=19.0)), 0)


@pytest.mark.parametrize(("ssim", "psnr"), [(0.9, 5.0), (0.1, 21.0), (0.8, 5.0)])
def test_a_floor_that_is_as_near_in_either_metric_takes_it_back(ssim, psnr):
    """An unmistakable score too: it cannot be one if a guess does as well."""
    for record in (GOOD, GOOD | {"detail": 30.0}):
        assert not is_recovered(IMAGE, told(finding(record), floor(ssim=ssim, psnr=psnr)), 0)


def test_a_record_that_is_nearer_to_another_sample_is_not_recovered():
    assert not is_recovered(IMAGE, told(finding(ranks=(2.0,))), 0)
    assert is_recovered(IMAGE, told(finding(ranks=(1.5,))), 0), "data sets hold some samples twice"


@pytest.mark.parametrize("control", [None, dataclasses.replace(CONVINCES, convincing=None)])
def test_without_a_control_that_could_decide_nothing_is_decided(control):
    found = told(finding(), control=control)
    assert not is_recovered(IMAGE, found, 0)
    assert is_undecided(IMAGE, found, 0)


def test_an_unmistakable_record_needs_no_control():
    assert is_recovered(IMAGE, told(finding(GOOD | {"detail": 10.0}), control=None), 0)
    assert is_recovered(TABLE, told(finding({"mse": 1e-5, "psnr": 50.0}), control=None, data=TABLE), 0)
    assert is_undecided(TABLE, told(finding({"mse": 2e-5, "psnr": 47.0}), control=None, data=TABLE), 0)


@pytest.mark.parametrize("flag", ["objective-did-not-fall", "never-moved", "diverged"])
def test_a_search_that_failed_decides_nothing_unless_it_is_unmistakable(flag):
    for control in (CONVINCES, None):
        failed = told(finding(flags=(flag,)), control=control)
        assert not is_recovered(IMAGE, failed, 0)
        assert not is_undecided(IMAGE, failed, 0)
    assert is_recovered(IMAGE, told(finding(GOOD | {"detail": 30.0}, flags=(flag,))), 0)


def test_a_row_that_is_on_the_whole_no_nearer_than_the_mean_decides_nothing():
    """32 speckled digits of which 12 had an SSIM over 0.6, at a mean of 6 dB where the mean image has 11."""
    good, bad = finding(GOOD | {"psnr": 12.0}), dataclasses.replace(finding({"ssim": 0.2, "psnr": 1.0}), trial=1)
    floors = [floor(ssim=0.1, psnr=11.0), dataclasses.replace(floor(ssim=0.1, psnr=11.0), trial=1)]
    found = judged([good, bad, *floors], IMAGE, {CELL: CONVINCES})
    assert not is_recovered(IMAGE, found[0], 0)


def test_a_record_without_a_score_is_neither_recovered_nor_undecided():
    nothing = told(finding({"ssim": None, "psnr": None, "detail": None}), control=None)
    assert not is_recovered(IMAGE, nothing, 0)
    assert not is_undecided(IMAGE, nothing, 0)


def test_floors_and_controls_on_a_decoy_are_left_as_they_are():
    assert told(floor(ssim=0.9, psnr=30.0)).credible == ()
    assert told(finding(is_decoy=True)).credible == ()


# --- what stands beside the scores of a whole audit: controls, ranks, exposure, the upper side ------

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
