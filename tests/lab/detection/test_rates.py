"""Thresholds come from one half, rates from the other, and neither knows of the other's models."""

import dataclasses

from leakgauge.checks.suspicion import Measured
from leakgauge.checks.thresholds import Thresholds
from leakgauge.lab.detection.cases import Case
from leakgauge.lab.detection.rates import Scored, alarms, by_check, chosen_thresholds, halves, rates, score_all


def scored(tampered: bool, kernels: float, seed: int = 0) -> Scored:
    family = "bad" if tampered else "clean"
    measured = {"copy-kernels": {"conv": Measured(kernels, "seen")}}
    return Scored(Case(family, tampered, "m", "d", 0, "", "", seed), measured, measured, 0.0)


def test_halves_share_nothing_and_hold_every_family():
    every = [scored(t, 0.1, seed) for t in (False, True) for seed in range(6)]
    one, other = halves(every)
    assert len(one) == len(other) == 6
    assert not {id(x) for x in one} & {id(x) for x in other}
    assert {x.case.family for x in one} == {x.case.family for x in other} == {"bad", "clean"}


def test_a_threshold_lies_between_clean_and_tampered():
    found = chosen_thresholds([scored(False, 0.1), scored(False, 0.2), scored(True, 0.6), scored(True, 0.8)])
    assert found.copy_kernels == (0.2 + 0.7) / 2
    assert dataclasses.replace(found, copy_kernels=Thresholds().copy_kernels) == Thresholds()


def test_a_check_that_only_clean_models_set_off_is_raised_above_them():
    found = chosen_thresholds([scored(False, 0.9), scored(True, 0.3)])
    assert found.copy_kernels > 0.9


def test_rates_count_alarms_by_family():
    rows = rates([scored(True, 0.9), scored(True, 0.1), scored(False, 0.1)], Thresholds())
    by_family = {row.family: row for row in rows}
    assert by_family["bad"].weights.value == 0.5
    assert by_family["clean, all"].probed.value == 0.0
    assert by_family["clean, all"].probed.high > 0.5  # one model says little
    assert alarms(scored(True, 0.9), Thresholds()) == ("copy-kernels",)


def test_each_check_is_counted_by_itself_cautions_too():
    measured = {"mostly-zeros": {"fc": Measured(0.6, "seen")}, "copy-kernels": {"conv": Measured(0.1, "seen")}}
    pruned = Scored(Case("clean, pruned", False, "m", "d", 0, "", "", 0), measured, measured, 0.0)
    (row,) = by_check([pruned, pruned], Thresholds())
    assert (row.family, row.models) == ("clean, pruned", 2)
    assert row.shares["mostly-zeros"].value == 1
    assert row.shares["copy-kernels"].value == 0


def test_real_models_are_scored():
    cases = [
        Case("clean", False, "mlp", "digits", 0, "", "", 0),
        Case("mkor", True, "mlp:activation=relu", "digits", 0, "", "mkor", 0),
    ]
    clean, tampered = score_all(cases)
    assert not alarms(clean, Thresholds())
    assert alarms(tampered, Thresholds())
