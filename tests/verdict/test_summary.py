"""From findings to rows and from rows to a conclusion: floors, failures, intervals, controls, both sides."""

import dataclasses

import pytest

from leakgauge.metrics.intervals import clopper_pearson, rate
from leakgauge.types import (
    Control,
    DataSpec,
    Finding,
    Guarantee,
    Interval,
    LabelsRead,
    Proven,
    Rate,
    Summary,
    UpperSide,
    cell_name,
)
from leakgauge.verdict.credible import judged
from leakgauge.verdict.gate import Gate
from leakgauge.verdict.summary import (
    LABELS,
    all_proven,
    conclude,
    conclusion,
    headline,
    in_a_row,
    state_of,
    summarise,
    unscored_verdict,
)

IMAGE = DataSpec("pictures", (1, 8, 8), 10, "image")


CONVINCES = Control(39, True, 6, 6, 1.0, 1e-4, 1e-4, True, 1e-9, True)
CHANCE = Control(39, True, 6, 0, 20.0, 0.5, 0.5, False, 0.9, False)


def found(attack: str, ssims, *, defense: str = "none", adaptive: bool = False, psnr: float = 20.0, **more):
    """One finding per trial, one record each, nearest to its own; floors are 10 dB away."""
    psnr = 10.0 if attack == "mean-image" else psnr
    return [
        Finding(
            attack,
            defense,
            adaptive,
            t,
            t,
            {"ssim": s, "psnr": psnr},
            ({"ssim": s, "psnr": psnr, "mse": 0.01},),
            seconds=1.0,
            ranks=(1.0,),
            **more,
        )
        for t, s in enumerate(ssims)
    ]


def weighed(findings, flagged=(), data=IMAGE):
    """As an audit does it, with a control that convinces for all but the flagged attacks."""
    names = {cell_name(f.attack, f.defense, f.adaptive): f.attack for f in findings}
    controls = {name: CHANCE if attack in flagged else CONVINCES for name, attack in names.items()}
    told = judged(findings, data, controls)
    return told, summarise(told, data, controls)


def concluded(findings, configurations=("none",), gate=None, guarantees=None, uppers=None, flagged=()):
    told, rows = weighed(findings, flagged)
    return conclude(rows, told, configurations, guarantees or {}, gate, IMAGE, uppers)


# --- when a record counts as recovered --------------------------------------------------------------


def test_the_floor_is_compared_record_by_record():
    """Trial 0's mean image is already that good; trial 1's is not."""
    findings = found("mean-image", [0.9, 0.1]) + found("dlg", [0.8, 0.8])
    rows = {r.attack: r for r in weighed(findings)[1]}
    assert rows["dlg"].success_rate.recovered == 1
    assert rows["dlg"].met == 2
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


def test_success_of_content_and_label_are_shares_of_all_trials_failed_ones_too():
    solved = [True, False, None]
    findings = [
        dataclasses.replace(f, solved=s, scores=dict(f.scores) | {"label_accuracy": 1.0 if s is not None else None})
        for f, s in zip(found("dlg", [0.9, 0.8, 0.1]), solved, strict=True)
    ]
    (row,) = summarise(findings, IMAGE)
    assert row.metrics["asr_content_share_of_trials"].value == pytest.approx(1 / 3)
    assert row.metrics["asr_label_share_of_trials"] == Interval(2 / 3, *clopper_pearson(2, 3))


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
    assert none.success_rate.high == pytest.approx(1 - 0.025 ** (1 / 50))  # 0 of 50 is at most 7.1 %
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
    assert (entry.attack, entry.adaptive, entry.leaks) == ("dlg", True, True)
    assert verdict.sentence.startswith(
        "With prune, dlg (knowing the defense) recovers 1 of 2 records (ssim>=0.6; 95 %:"
    )


def test_all_recovered_is_given_a_lower_bound_and_none_an_upper_one():
    assert "recovers 10 of 10 records (ssim>=0.6; at least 69% at 95 %)" in concluded(found("dlg", [0.9] * 10)).sentence
    held = concluded(found("dlg", [0.1] * 10), flagged=("dlg",))
    assert not held.leaks
    assert held.sentence == "Without defense, no attack recovered any of 10 records (ssim>=0.6; at most 31% at 95 %)."


def test_the_configurations_under_test_decide_and_the_comparison_does_not():
    findings = found("dlg", [0.9]) + found("dlg", [0.1], defense="prune")
    verdict = concluded(findings, ("none", "prune"))
    assert not verdict.leaks
    assert [c.leaks for c in verdict.configurations] == [True, False]
    assert "Without defense" not in verdict.sentence


def test_nothing_scored_is_said_and_is_no_leak():
    findings = [Finding("linear", "none", False, 0, 0, {}, error="not applicable: conv")]
    verdict = concluded(findings)
    assert not verdict.leaks
    assert "nothing could be scored" in verdict.sentence
    assert concluded([], ()).sentence == "Nothing was measured."


def test_where_nothing_ran_no_promise_counts_and_nothing_is_cleared():
    findings = [
        dataclasses.replace(f, error="not applicable: it mixes samples", scores={}, records=())
        for f in found("dlg", [0.1], defense="dp-sgd")
    ]
    promise = {"dp-sgd": Guarantee(1.0, 1e-5, "sample")}
    verdict = concluded(findings, ("dp-sgd",), guarantees=promise, uppers={"dp-sgd": BOUND})
    (entry,) = verdict.configurations
    assert (entry.tested, entry.guarantee, entry.upper.guaranteed) == (False, None, False)
    assert (entry.standing, state_of(entry)) == ("unknown", "not tested")
    assert headline(verdict) == "Not tested: no attack could be carried out"
    both = concluded([*findings, *found("dlg", [0.1], defense="prune")], ("dp-sgd", "prune"))
    assert headline(both) == "No leak found, but not everything could be tested"


def test_an_accounted_guarantee_is_reported_as_it_is():
    verdict = concluded(found("dlg", [0.1]), guarantees={"none": Guarantee(8.0, 1e-5, "sample")})
    assert verdict.configurations[0].guarantee == Guarantee(8.0, 1e-5, "sample")


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
    assert verdict.configurations[0].rate is None
    assert verdict.sentence == (
        "Without defense, no attack of this run claims records. "
        "The attack labels reads the labels of 3 of 4 records (guessing: 25%)."
    )
    assert headline(verdict) == "No record recovered, but labels read"


def test_labels_that_are_no_better_than_a_guess_are_not_told():
    verdict = concluded(guessed([0.5, 0.5]) + counted([0.5, 0.5]))
    assert verdict.sentence == "Without defense, no attack of this run claims records."
    assert headline(verdict) == "No leak found, and no guarantee"


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
    findings = found("ggl on a decoy", [0.9], is_decoy=True) + found("ggl", [0.1])
    verdict = concluded(findings, gate=Gate("ssim", 0.5))
    assert not verdict.leaks
    assert verdict.gate.passed


# --- the gate ---------------------------------------------------------------------------------------


def test_the_floors_do_not_count_for_the_gate():
    findings = found("mean-image", [0.1, 0.5, 0.9]) + found("dlg", [0.1, 0.6, 0.2])
    assert not concluded(findings, gate=Gate("ssim", 0.5)).gate.passed
    assert concluded(findings, gate=Gate("ssim", 0.7)).gate.passed


def test_a_flat_picture_or_one_of_nobody_opens_no_gate():
    flat = found("mean-image", [0.7]) + found("dlg", [0.6])
    assert concluded(flat, gate=Gate("ssim", 0.5)).gate.passed
    nobody = found("ggl", [0.9])
    assert concluded(nobody, gate=Gate("ssim", 0.5), flagged=("ggl",)).gate.passed
    assert not concluded(nobody, gate=Gate("ssim", 0.5)).gate.passed


def test_a_few_labels_more_than_a_guess_names_are_chance():
    findings = guessed([0.5] * 8) + counted([0.5] * 7 + [1.0])  # 9 of 16 against one half
    assert headline(concluded(findings)) == "No leak found, and no guarantee"
    findings = guessed([0.5] * 8) + counted([1.0] * 8)
    assert headline(concluded(findings)) == "No record recovered, but labels read"


def test_the_gate_judges_the_defended_configuration_and_not_the_comparison():
    findings = found("dlg", [0.9]) + found("dlg", [0.1], defense="prune")
    assert concluded(findings, ("none", "prune"), Gate("ssim", 0.5)).gate.passed
    assert not concluded(findings, ("none",), Gate("ssim", 0.5)).gate.passed


def test_no_gate_gives_no_gate_result():
    assert concluded(found("dlg", [0.1])).gate is None


# --- controls and both sides ------------------------------------------------------------------------

KAPPA = Rate(0.01, 0.0, 0.05, 1, 100, "ssim>=0.6")
BOUND = UpperSide(guaranteed=True, gamma=0.12, mu=0.5, steps=1, unit="sample", kappa=KAPPA)


def test_what_does_not_beat_its_control_is_no_leak_however_well_it_scores():
    verdict = concluded(found("ggl", [0.9] * 6), flagged=("ggl",))
    assert not verdict.leaks
    assert "comes no closer to them than to others of the same kind: nothing was recovered" in verdict.sentence
    assert verdict.configurations[0].lower.recovered == 0


def test_an_attack_that_beats_its_control_decides_before_one_that_does_not():
    findings = found("ggl", [0.9] * 6) + found("dlg", [0.9, 0.1, 0.1, 0.1, 0.1, 0.1])
    verdict = concluded(findings, flagged=("ggl",))
    assert verdict.leaks
    assert verdict.configurations[0].attack == "dlg"
    assert verdict.configurations[0].lower.recovered == 1


def test_the_lower_side_counts_a_record_once_whichever_attack_recovered_it():
    findings = found("dlg", [0.9, 0.9, 0.1, 0.1]) + found("idlg", [0.1, 0.9, 0.9, 0.1])
    lower = concluded(findings).configurations[0].lower
    assert (lower.recovered, lower.records, lower.certified) == (3, 4, None)
    assert lower.at_least == pytest.approx(0.1941, abs=1e-3)


def test_certificates_are_counted_per_attack_and_the_best_is_told():
    findings = found("imprint", [0.9, 0.9], certified=1) + found("trap-weights", [0.9, 0.1], certified=0)
    assert concluded(findings).configurations[0].lower.certified == 2


@pytest.mark.parametrize(
    ("ssims", "uppers", "standing", "state", "words"),
    [
        ([0.9], {}, "leaks", "leaks", "Leaks"),
        ([0.1], {}, "unknown", "no leak found", "No leak found, and no guarantee"),
        ([0.1], {"none": BOUND}, "protected", "protected", "Protected by a guarantee, and no leak found"),
        (
            [0.1],
            {"none": dataclasses.replace(BOUND, gamma=0.4)},
            "unknown",
            "no leak found",
            "No leak found, and only a weak guarantee",
        ),
    ],
)
def test_leaks_protected_or_unknown(ssims, uppers, standing, state, words):
    verdict = concluded(found("dlg", ssims * 6), uppers=uppers)
    (entry,) = verdict.configurations
    assert (entry.standing, state_of(entry), headline(verdict)) == (standing, state, words)


def test_poor_recoveries_that_point_to_their_records_are_told():
    findings = found("dlg", [0.4] * 6)
    control = Control(39, True, 6, 5, 1.0, 1e-4, 0.1, True)
    for p, said in ((1e-4, True), (0.02, False)):
        rows = [
            dataclasses.replace(r, control=dataclasses.replace(control, p_mean=p)) for r in summarise(findings, IMAGE)
        ]
        verdict = conclude(rows, findings, ("none",), {}, None, IMAGE)
        assert not verdict.leaks
        assert ("5 of 6 recoveries of dlg are nearer to their own record than to 39 others" in verdict.sentence) is said


def test_the_gap_is_said_to_be_unknown():
    (bare,) = concluded(found("dlg", [0.9] * 6)).configurations
    assert bare.sides.endswith("No guarantee: nothing in this configuration is accounted. All above 54 % is unknown.")
    (bounded,) = concluded(found("dlg", [0.1] * 6), uppers={"none": BOUND}).configurations
    assert bounded.sides.endswith("What lies between 0 % and 12 % is unknown.")


def test_the_tail_of_a_row_is_its_exposed_end():
    (row,) = summarise(found("dlg", [i / 100 for i in range(100)]), IMAGE)
    assert (row.tail.worst, row.tail.one_in_twenty, row.tail.median) == (0.99, 0.95, 0.5)


# --- what is said first -----------------------------------------------------------------------------


def of_three():
    """One configuration that leaks, one whose labels are read and one that gives away nothing."""
    labels = [dataclasses.replace(f, defense="gaussian:std=1") for f in counted([1.0] * 6)]
    found_in = found("dlg", [0.1] * 6, defense="gaussian:std=1") + found("dlg", [0.1] * 6, defense="dp-sgd:sigma=5")
    return concluded(
        [*guessed([0.0] * 6), *labels, *found_in, *found("idlg", [0.9] * 6, defense="prune:share=0.9", adaptive=True)],
        ("gaussian:std=1", "dp-sgd:sigma=5", "prune:share=0.9"),
    )


def test_the_configuration_that_leaks_comes_first_in_one_short_sentence():
    sentences = of_three().sentence.split(". ")
    assert sentences[0] == (
        "With prune:share=0.9, idlg (knowing the defense) recovers 6 of 6 records (ssim>=0.6; at least 54% at 95 %)"
    )
    assert len(sentences[0].split()) <= 25
    assert [s.split(",")[0] for s in sentences if s.startswith("With ")] == [
        "With prune:share=0.9",
        "With gaussian:std=1",
        "With dp-sgd:sigma=5",
    ]


def test_a_headline_names_the_configurations_it_speaks_of():
    verdict = of_three()
    assert headline(verdict) == "Leaks with prune:share=0.9, labels read with gaussian:std=1"
    kept = tuple(c for c in verdict.configurations if not c.leaks)
    held = dataclasses.replace(verdict, leaks=False, configurations=kept)
    assert headline(held) == "No record recovered, but labels read with gaussian:std=1"
    both = concluded(found("dlg", [0.9] * 6, defense="a") + found("dlg", [0.9] * 6, defense="b"), ("none", "a", "b"))
    assert headline(both) == "Leaks"  # all that are under test


def test_names_stand_in_a_row():
    assert [in_a_row(names) for names in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == ["", "a", "a and b", "a, b and c"]


def test_cannot_tell_is_not_protected_and_keeps_the_labels():
    """A guarantee beside a record of which nobody knows is no protection that was shown."""
    unsure = [dataclasses.replace(f, credible=(None,)) for f in found("dlg", [0.9])]
    verdict = conclude(summarise(unsure, IMAGE), unsure, ("none",), {}, None, IMAGE, {"none": BOUND})
    (entry,) = verdict.configurations
    assert (entry.undecided, entry.standing, state_of(entry)) == (1, "unknown", "cannot tell")
    labels = LabelsRead("labels", share=1.0, guess=0.1, records=1, read=1, proven=0)
    read = dataclasses.replace(verdict, configurations=(dataclasses.replace(entry, labels=labels),))
    assert headline(read) == "Cannot tell: too few other samples to compare with, but labels read"


def test_the_most_exposed_record_is_one_whose_score_is_credible():
    findings = [
        dataclasses.replace(f, credible=(worth,))
        for f, worth in zip(found("dlg", [0.99, 0.9, 0.7, 0.5]), (False, None, True, True), strict=True)
    ]
    (row,) = summarise(findings, IMAGE)
    assert (row.worst["trial"], row.worst["ssim"]) == (2, 0.7)
    (unsure,) = summarise(findings[:2], IMAGE)
    assert unsure.worst["trial"] == 1


def test_one_proof_is_told_in_the_singular():
    verdict = concluded(found("imprint", [0.9] * 2, certified=0) + found("peeling", [0.9], certified=1))
    assert "1 recovery carries a proof of its own" in verdict.configurations[0].sides


# --- one configuration in words ---------------------------------------------------------------------


def row(
    attack="dlg", recovered=0, records=6, *, flags=(), labels=None, control=None, guess=0.1, psnr=10.0, **more
) -> Summary:
    metrics = {"psnr_mean_per_image": Interval(psnr, None, None)}
    metrics |= {} if labels is None else {LABELS: Interval(labels, None, None)}
    return Summary(
        attack,
        "prune",
        False,
        records or 6,
        0,
        metrics,
        rate(recovered, records, "ssim>=0.6"),
        {},
        {"mean-image": {LABELS: Interval(guess, None, None)}},
        flags,
        control=control,
        **more,
    )


def test_the_attack_that_recovers_most_credibly_decides():
    chance = Control(39, True, 6, 0, 20.0, 0.5, 0.5, False, 0.9, False)
    flattered = row("ggl", 0, met=6, control=chance)
    found = conclusion("prune", [row("dlg", 1), row("cpl", 2), flattered], None, 1)
    assert (found.attack, found.leaks, found.rate.recovered) == ("cpl", True, 2)
    alone = conclusion("prune", [flattered], None, 1)
    assert not alone.leaks
    assert "comes no closer to them than to others of the same kind: nothing was recovered" in alone.sentence


def test_scores_that_no_control_can_decide_are_said_to_decide_nothing():
    found = conclusion("prune", [row("dlg", 0, 1, met=1, undecided=1), row("cpl", 0, 1, psnr=30.0)], None, 1)
    assert (found.attack, found.leaks, found.undecided) == ("dlg", False, 1)
    assert "too few other samples to exclude chance" in found.sentence


def test_a_failed_search_that_meets_the_criterion_is_said_to_have_recovered_nothing():
    found = conclusion("prune", [row("dlg", 0, met=2, flags=("objective-did-not-fall",))], None, 1)
    assert not found.leaks
    assert found.sentence == (
        "With prune, dlg meets ssim>=0.6 for 2 of 6 records, but by a search that failed: no recovery is shown."
    )


@pytest.mark.parametrize(
    ("control", "said"),
    [
        (None, "is no closer to them than a guess or another sample: no recovery is shown"),
        (Control(39, True, 6, 2, 9.0, 0.01, 0.5, True, 0.9, False), "is not clearly nearer to them than to others"),
        (Control(39, True, 6, 6, 1.0, 1e-4, 1e-4, True, 1e-9, True), "is no closer to them than a guess or another"),
    ],
)
def test_why_good_scores_do_not_count_is_told_as_it_was_found(control, said):
    """A control that is beaten, if not far enough, is not called unbeaten; one that convinces is not blamed at all."""
    sentence = conclusion("prune", [row(met=2, control=control)], None, 1).sentence
    assert said in sentence
    assert "failed" not in sentence


def test_one_record_is_told_in_the_singular():
    assert conclusion("none", [row(records=1)], None, 1).sentence.startswith(
        "Without defense, no attack recovered the one record (ssim>=0.6; at most 98"
    )
    assert "dlg recovers 1 of 1 record (" in conclusion("none", [row(recovered=1, records=1)], None, 1).sentence
    one = Control(39, True, 6, 1, 9.0, 1e-4, 0.5, True)
    assert (
        "1 of 6 recoveries of dlg is nearer to its own record"
        in conclusion("none", [row(control=one)], None, 1).sentence
    )


def test_labels_that_were_given_are_not_read():
    """Else the sentence would call an oracle's answer a leak."""
    given = row(labels=1.0, records=16, flags=("labels-given",))
    assert conclusion("prune", [given], None, 2).labels is None
    proven = dataclasses.replace(given, labels_proven=12)
    found = conclusion("prune", [proven], None, 2).labels
    assert (found.share, found.proven) == (12 / 32, 12)


def test_among_failures_the_closest_is_named():
    assert conclusion("prune", [row("dlg", psnr=5.0), row("cpl", psnr=15.0)], None, 1).attack == "cpl"


@pytest.mark.parametrize(("p", "told"), [(1e-4, True), (1e-3, True), (0.01, False)])
def test_traces_are_told_far_beyond_chance_only(p, told):
    found = conclusion("prune", [row(control=Control(39, True, 6, 5, 1.0, p, 0.5, True))], None, 1)
    assert (found.traces is not None) is told
    assert ("5 of 6 recoveries of dlg are nearer to their own record than to 39 others" in found.sentence) is told


def test_a_leak_needs_no_traces():
    found = conclusion("prune", [row(recovered=3, control=Control(39, True, 6, 5, 1.0, 1e-4, 0.5, True))], None, 1)
    assert found.traces is None


@pytest.mark.parametrize(("share", "guess", "told"), [(1.0, 0.1, True), (0.3, 0.19, False), (0.1, 0.1, False)])
def test_labels_are_told_where_they_are_more_than_a_guess(share, guess, told):
    found = conclusion("prune", [row(labels=share, guess=guess, records=16)], None, 2)
    assert (found.labels is not None) is told


def test_nothing_that_ran_and_nothing_that_claims_records_are_two_things():
    assert "no attack of this run fits" in conclusion("none", [], None, 1).sentence
    claimless = conclusion("none", [row(records=0)], Guarantee(1.0, 1e-5, "sample"), 1)
    assert "no attack of this run claims records" in claimless.sentence
    assert claimless.guarantee == Guarantee(1.0, 1e-5, "sample")


def test_two_labels_of_six_are_no_more_than_one_class_in_ten_explains():
    """Even where the guess of a floor, on the same few records, named none."""
    few = [row(labels=2 / 6, guess=0.0, records=6)]
    assert conclusion("dp-sgd", few, None, 1, classes=10).labels is None
    assert conclusion("dp-sgd", few, None, 1, classes=100).labels.guess == 0.01


def test_a_label_that_the_update_proves_needs_no_statistics():
    """One update, ten classes: one of one is no evidence by itself, and here it needs none."""
    one = row("labels", 0, 0, labels=1.0, labels_proven=1)
    one = dataclasses.replace(one, trials=1)
    found = conclusion("none", [one], None, 1, classes=10)
    assert (found.labels.proven, found.labels.read, found.labels.records) == (1, 1, 1)
    assert (
        "The attack labels reads the labels of 1 of 1 record (guessing: 10%); what was shared proves it."
        in found.sentence
    )
    unproven = dataclasses.replace(one, labels_proven=0)
    assert conclusion("none", [unproven], None, 1, classes=10).labels is None


# --- without samples to compare with -----------------------------------------------------------------


def proved(trial, certified=None, labels=None):
    return Finding("peeling", "none", False, trial, 0, {}, certified=certified, labels_proven=labels)


def test_each_record_is_counted_once_by_the_attack_that_proved_most():
    verdict = unscored_verdict([proved(0, 2), proved(0, 1, 2), proved(1, 1)], trials=2, samples=2)
    assert verdict.proven == Proven(records=3, of_records=4, labels=2, of_labels=4)
    assert verdict.leaks
    assert verdict.sentence == "Not scored: no samples to compare with; proven: 3 of 4 records and 2 of 4 labels."


@pytest.mark.parametrize(
    ("records", "labels", "said"),
    [
        (1, 0, "Leaks: the updates alone prove private records"),
        (0, 1, "Labels are proven, no record is"),
        (0, 0, "Nothing is proven"),
    ],
)
def test_the_headline_never_says_that_there_is_no_leak(records, labels, said):
    verdict = unscored_verdict([proved(0, records, labels)], trials=1, samples=1)
    assert headline(verdict) == said
    assert verdict.leaks == bool(records)


def test_one_is_said_as_one():
    assert "0 of 1 record and 1 of 1 label." in unscored_verdict([proved(0, 0, 1)], trials=1, samples=1).sentence


def test_all_is_proven_only_if_every_client_is():
    assert all_proven([proved(0, 2), proved(1, 2)], trials=2, samples=2)
    assert not all_proven([proved(0, 2), proved(0, 2)], trials=2, samples=2)
    assert not all_proven([], trials=1, samples=1)
