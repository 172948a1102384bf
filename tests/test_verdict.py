"""From findings to rows and from rows to a conclusion: floors, failures, intervals, gates."""

import dataclasses

import pytest

from leakgauge.errors import BadInput
from leakgauge.types import DataSpec, Finding, Guarantee, Interval
from leakgauge.verdict import Gate, conclude, criterion, headline, is_recovered, summarise

IMAGE = DataSpec("pictures", (1, 8, 8), 10, "image")
TABLE = DataSpec("table", (30,), 2, "tabular")


def found(attack: str, ssims, *, defense: str = "none", adaptive: bool = False, psnr: float = 20.0, **more):
    """One finding per trial, one record each."""
    return [
        Finding(
            attack, defense, adaptive, t, t, {"ssim": s, "psnr": psnr}, ({"ssim": s, "psnr": psnr, "mse": 0.01},),
            seconds=1.0, **more,
        )
        for t, s in enumerate(ssims)
    ]  # fmt: skip


def concluded(findings, configurations=("none",), gate=None, guarantees=None):
    return conclude(summarise(findings, IMAGE), findings, configurations, guarantees or {}, gate)


# --- the gate ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["ssim=0.5", "psnr=20", "mse=1e-3"])
def test_a_gate_is_a_metric_and_a_number(text):
    name, value = text.split("=")
    assert Gate.parse(text) == Gate(name, float(value))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sim=0.5", "did you mean 'ssim'"),
        ("ssim", "METRIC=NUMBER, got 'ssim'"),
        ("ssim=high", "METRIC=NUMBER"),
        ("ssim=nan", "METRIC=NUMBER"),
        ("psnr=inf", "METRIC=NUMBER"),
        ("", "gate metric"),
    ],
)
def test_a_gate_that_could_never_shut_is_refused(text, message):
    with pytest.raises(BadInput, match=message):
        Gate.parse(text)


def test_reaching_the_threshold_counts_in_the_metrics_own_direction():
    assert Gate("ssim", 0.5).exceeded_by(0.5)
    assert not Gate("ssim", 0.5).exceeded_by(0.49)
    assert Gate("mse", 0.01).exceeded_by(0.01)
    assert not Gate("mse", 0.01).exceeded_by(0.02)
    assert not Gate("ssim", 0.5).exceeded_by(None)


def test_one_record_is_enough_to_fail_the_gate_and_the_floors_do_not_count():
    findings = found("mean-image", [0.9, 0.9, 0.9]) + found("dlg", [0.1, 0.6, 0.2])
    failed = concluded(findings, gate=Gate("ssim", 0.5)).gate
    assert not failed["passed"]
    assert "dlg on none, trial 1, record 0: 0.600" in failed["sentence"]
    held = concluded(findings, gate=Gate("ssim", 0.7)).gate
    assert held["passed"]
    assert "held" in held["sentence"]


def test_the_gate_judges_the_defended_configuration_and_not_the_comparison():
    findings = found("dlg", [0.9]) + found("dlg", [0.1], defense="prune")
    assert concluded(findings, ("none", "prune"), Gate("ssim", 0.5)).gate["passed"]
    assert not concluded(findings, ("none",), Gate("ssim", 0.5)).gate["passed"]


@pytest.mark.parametrize(
    "findings", [[], [Finding("linear", "none", False, 0, 0, {}, error="no")], found("mean-image", [0.1])]
)
def test_a_gate_does_not_hold_where_nothing_was_measured(findings):
    gate = concluded(findings, gate=Gate("ssim", 0.5)).gate
    assert not gate["passed"]
    assert "could be scored" in gate["sentence"]


def test_no_gate_gives_no_gate_result():
    assert concluded(found("dlg", [0.1])).gate is None


# --- when a record counts as recovered --------------------------------------------------------------


def test_the_criterion_is_spelled_out_per_kind_of_data():
    assert criterion(IMAGE) == "ssim>=0.6"
    assert criterion(TABLE) == "mse<=0.001"


def test_a_picture_is_recovered_if_it_meets_the_criterion_and_beats_the_mean_image():
    assert is_recovered(IMAGE, {"ssim": 0.6}, {})
    assert not is_recovered(IMAGE, {"ssim": 0.59}, {})
    assert is_recovered(IMAGE, {"ssim": 0.8}, {"ssim": 0.7})
    assert not is_recovered(IMAGE, {"ssim": 0.8}, {"ssim": 0.8})  # a flat picture alone recovers nothing
    assert not is_recovered(IMAGE, {"ssim": None}, {})
    assert not is_recovered(IMAGE, {}, {})


def test_a_table_is_recovered_by_small_error():
    assert is_recovered(TABLE, {"mse": 1e-4}, {"mse": 0.1})
    assert not is_recovered(TABLE, {"mse": 1e-4}, {"mse": 1e-5})
    assert not is_recovered(TABLE, {"mse": 0.01}, {})


def test_the_floor_is_compared_record_by_record():
    """Trial 0's mean image is already that good; trial 1's is not."""
    findings = found("mean-image", [0.9, 0.1]) + found("dlg", [0.8, 0.8])
    rows = {r.attack: r for r in summarise(findings, IMAGE)}
    assert rows["dlg"].success_rate.recovered == 1
    assert rows["mean-image"].success_rate.recovered == 1  # a floor is not held against itself


# --- rows -------------------------------------------------------------------------------------------


def test_a_row_counts_trials_failures_and_names_its_reductions():
    findings = [*found("dlg", [0.2, 0.8]), *found("dlg", [0.4], flags=("diverged",))]
    (row,) = summarise(findings, IMAGE)
    assert (row.trials, row.failed) == (3, 1)
    assert row.success_rate.records == 3  # a diverged trial stays in the denominator
    assert set(row.metrics) == {"ssim_mean_per_image", "psnr_mean_per_image"}
    assert row.metrics["ssim_mean_per_image"].value == pytest.approx(1.4 / 3)
    assert row.seconds == 3.0
    assert row.flags == ("diverged",)
    assert row.error is None


def test_a_row_says_what_the_median_trial_spent_of_those_that_ran():
    spent = [(10, 200), (20, 400), (30, 600), (1000, 20000)]
    findings = [
        dataclasses.replace(f, steps=steps, evaluations=evaluations)
        for f, (steps, evaluations) in zip(found("dlg", [0.1] * 4), spent, strict=True)
    ]
    findings.append(Finding("dlg", "none", False, 4, 4, {}, error="the loss became NaN", steps=3))
    (row,) = summarise(findings, IMAGE)
    assert row.steps_median == Interval(25.0, 17.5, 272.5)
    assert row.evaluations_median == Interval(500.0, 350.0, 5450.0)


def test_one_trial_is_its_own_median():
    (row,) = summarise(found("dlg", [0.1], steps=7, evaluations=8), IMAGE)
    assert (row.steps_median, row.evaluations_median) == (Interval(7.0, 7.0, 7.0), Interval(8.0, 8.0, 8.0))


def test_the_worst_record_is_the_one_recovered_best():
    (row,) = summarise(found("dlg", [0.2, 0.9, 0.5]), IMAGE)
    assert (row.worst["trial"], row.worst["record"], row.worst["ssim"]) == (1, 0, 0.9)


def test_the_interval_is_clopper_pearsons():
    (none,) = summarise(found("dlg", [0.1] * 50), IMAGE)
    assert none.success_rate.value == 0
    assert none.success_rate.high == pytest.approx(1 - 0.05 ** (1 / 50))  # 0 of 50 is at most 5.8 %
    (some,) = summarise(found("dlg", [0.1] * 5 + [0.9] * 5), IMAGE)
    assert (some.success_rate.low, some.success_rate.high) == pytest.approx((0.1871, 0.8129), abs=1e-4)


def test_plain_and_adaptive_are_rows_of_their_own_beside_every_floor():
    findings = [
        *found("random-guess", [0.0, 0.01]),
        *found("mean-image", [0.1, 0.2]),
        *found("dlg", [0.3, 0.3], defense="prune"),
        *found("dlg", [0.5, 0.5], defense="prune", adaptive=True),
    ]
    rows = summarise(findings, IMAGE)
    assert [(r.attack, r.adaptive) for r in rows][-2:] == [("dlg", False), ("dlg", True)]
    assert set(rows[-1].floor) == {"random-guess", "mean-image"}
    assert rows[-1].floor["mean-image"]["ssim_mean_per_image"].value == pytest.approx(0.15)
    assert rows[0].floor == {}


def test_a_cell_that_could_not_run_keeps_its_error():
    findings = [Finding("linear", "none", False, t, t, {}, error="not applicable: conv") for t in range(2)]
    (row,) = summarise(findings, IMAGE)
    assert (row.trials, row.failed, row.success_rate.records) == (2, 2, 0)
    assert row.error == "not applicable: conv"
    assert row.worst == {}
    assert row.steps_median == row.evaluations_median == Interval(None, None, None)


# --- sentences --------------------------------------------------------------------------------------


def test_the_worst_attack_decides_adaptive_ones_included():
    findings = [
        *found("dlg", [0.1, 0.1], defense="prune"),
        *found("dlg", [0.9, 0.1], defense="prune", adaptive=True),
        *found("linear", [0.2, 0.1], defense="prune"),
    ]
    verdict = concluded(findings, ("prune",))
    assert verdict.leaks
    (entry,) = verdict.configurations
    assert (entry["attack"], entry["adaptive"], entry["leaks"]) == ("dlg", True, True)
    assert verdict.sentence.startswith(
        "With prune, dlg (knowing the defence) recovers 1 of 2 records (ssim>=0.6; 95 %:"
    )


def test_all_recovered_is_given_a_lower_bound_and_none_an_upper_one():
    assert "recovers 10 of 10 records (ssim>=0.6; at least 74% at 95 %)" in concluded(found("dlg", [0.9] * 10)).sentence
    held = concluded(found("dlg", [0.1] * 10))
    assert not held.leaks
    assert held.sentence == "Without defence, no attack recovered any of 10 records (ssim>=0.6; at most 26% at 95 %)."


def test_the_configurations_under_test_decide_and_the_comparison_does_not():
    findings = found("dlg", [0.9]) + found("dlg", [0.1], defense="prune")
    verdict = concluded(findings, ("none", "prune"))
    assert not verdict.leaks
    assert [c["leaks"] for c in verdict.configurations] == [True, False]
    assert "Without defence" not in verdict.sentence


def test_nothing_scored_is_said_and_is_no_leak():
    findings = [Finding("linear", "none", False, 0, 0, {}, error="not applicable: conv")]
    verdict = concluded(findings)
    assert not verdict.leaks
    assert "nothing could be scored" in verdict.sentence
    assert concluded([], ()).sentence == "Nothing was measured."


def test_an_accounted_guarantee_is_reported_as_it_is():
    verdict = concluded(found("dlg", [0.1]), guarantees={"none": Guarantee(8.0, 1e-5, "sample")})
    assert verdict.configurations[0]["guarantee"] == {"epsilon": 8.0, "delta": 1e-5, "unit": "sample"}


# --- labels alone -----------------------------------------------------------------------------------


def counted(shares, **more):
    """Findings of an attack that claims labels and no records."""
    return [Finding("labels", "none", False, t, t, {"label_accuracy": share}, **more) for t, share in enumerate(shares)]


def guessed(shares):
    """The floor: two records a trial, so that a trial is known to hold two."""
    blank = ({"ssim": 0.1}, {"ssim": 0.1})
    return [
        Finding("mean-image", "none", False, t, t, {"label_accuracy": share}, blank) for t, share in enumerate(shares)
    ]


def test_labels_alone_are_told_in_records_and_are_no_recovered_record():
    verdict = concluded(guessed([0.5, 0.0]) + counted([1.0, 0.5]))
    assert not verdict.leaks
    assert verdict.configurations[0]["rate"] is None
    assert verdict.sentence == (
        "Without defence, no attack of this run claims records. "
        "labels reads the labels of 3 of 4 records (guessing: 25%)."
    )
    assert headline(verdict) == "No record recovered, but labels read"


def test_labels_that_are_no_better_than_a_guess_are_not_told():
    verdict = concluded(guessed([0.5, 0.5]) + counted([0.5, 0.5]))
    assert verdict.sentence == "Without defence, no attack of this run claims records."
    assert headline(verdict) == "No leak found"


def test_labels_stand_beside_what_other_attacks_recover():
    findings = guessed([0.0, 0.0]) + counted([1.0, 1.0]) + found("dlg", [0.9, 0.1])
    verdict = concluded(findings)
    assert verdict.leaks
    assert "dlg recovers 1 of 2 records" in verdict.sentence
    assert "labels reads the labels of 4 of 4 records" in verdict.sentence
    assert headline(verdict) == "Leaks"


def test_labels_alone_have_a_row_without_records():
    row = summarise(guessed([0.5]) + counted([1.0]), IMAGE)[-1]
    assert row.success_rate.records == 0
    assert row.worst == {}
    assert row.metrics["label_accuracy_mean_per_trial"].value == 1


def test_a_control_on_a_decoy_is_no_leak_and_opens_no_gate():
    findings = found("ggl on a decoy", [0.9], control=True) + found("ggl", [0.1])
    verdict = concluded(findings, gate=Gate("ssim", 0.5))
    assert not verdict.leaks
    assert verdict.gate["passed"]
