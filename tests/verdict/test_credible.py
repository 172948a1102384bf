"""What a good score is worth: nearer than the floors, and unmistakable or with a control that convinces."""

import dataclasses

import pytest

from leakgauge.types import Control, DataSpec, Finding, cell_name
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
