"""The table: one value per column, attacks by defense, the floors beside and below them."""

import dataclasses

import pytest

from leakgauge.report import to_html, to_markdown
from leakgauge.report.rows import columns, exposed, guarantee_text, most_exposed, table_rows
from leakgauge.types import Exposure, Guarantee, Interval

NONE = ("–", ())


def with_row(report, attack, defense, **changes):
    rows = [
        dataclasses.replace(r, **changes) if (r.attack, r.defense) == (attack, defense) else r for r in report.summary
    ]
    return dataclasses.replace(report, summary=tuple(rows))


def row_of(report, attack, defense="none"):
    return next(r for r in table_rows(report) if (r.attack, r.defense) == (attack, defense))


def value_of(report, heading, attack, defense="none"):
    index = [c.heading for c in columns(report)].index(heading)
    return row_of(report, attack, defense).values[index]


def test_columns_of_an_image_audit(made):
    assert [(c.heading, c.note) for c in columns(made.report)] == [
        ("Success rate", "ssim>=0.6"),
        ("Trials", ""),
        ("Failed", ""),
        ("PSNR, dB", "mean per image"),
        ("SSIM", "mean per image"),
        ("Label accuracy", "mean per trial"),
        ("Most exposed record", ""),
        ("Control", "place of the true sample"),
        ("Floor: random-guess", ""),
        ("Floor: mean-image", ""),
        ("Flags", ""),
        ("Spent", "counts per victim"),
    ]


def test_a_table_is_measured_by_its_error(make):
    report = make("tabular", (30,)).report
    assert [c.heading for c in columns(report)][3:5] == ["MSE", "Label accuracy"]
    assert columns(report)[0].note == "mse<=0.001"
    assert value_of(report, "Most exposed record", "dlg")[0].startswith("MSE ")
    assert value_of(report, "Floor: mean-image", "dlg") == ("MSE 1.00e−01", ("[5.00e−02, 1.50e−01]",))


def test_only_the_success_rate_is_strong(made):
    assert [c.heading for c in columns(made.report) if c.strong] == ["Success rate"]


def test_a_metric_that_only_one_row_has_gets_a_column_and_gaps(made):
    metrics = dict(made.report.summary[0].metrics) | {"lpips_mean_per_image": Interval(0.25, 0.2, 0.3)}
    report = with_row(made.report, "dlg", "none", metrics=metrics)
    assert [c.heading for c in columns(report)][3:7] == ["PSNR, dB", "SSIM", "Label accuracy", "LPIPS"]
    assert value_of(report, "LPIPS", "dlg") == ("0.25", ("[0.2, 0.3]",))
    assert value_of(report, "LPIPS", "inverting-gradients") == NONE


@pytest.mark.parametrize(("kind", "shape"), [("image", (3, 8, 8)), ("tabular", (30,))])
def test_every_row_has_a_value_for_every_column(make, kind, shape):
    report = make(kind, shape).report
    assert {len(r.values) for r in table_rows(report)} == {len(columns(report))}


def test_a_report_without_rows_still_has_a_head(made):
    report = dataclasses.replace(made.report, summary=())
    assert table_rows(report) == []
    assert [c.heading for c in columns(report)][:4] == ["Success rate", "Trials", "Failed", "Most exposed record"]
    assert most_exposed(report) == ""


def test_every_column_has_a_number_to_sort_by_or_none(made, labels_only):
    heads = [c.heading for c in columns(made.report)]
    row = row_of(made.report, "dlg", "gaussian:std=0.1")
    keys = dict(zip(heads, row.keys, strict=True))
    assert (keys["Trials"], keys["Failed"], keys["Flags"], keys["Spent"]) == (3, 1, 1, 3.75)
    assert keys["Floor: mean-image"] == 0.1
    assert keys["Control"] is None
    assert row_of(made.report, "mean-image").keys[heads.index("Floor: mean-image")] is None
    assert next(r for r in table_rows(labels_only) if r.attack == "labels").keys[0] is None


def test_rows_are_grouped_by_defense_and_baselines_come_last(made):
    report = dataclasses.replace(made.report, summary=made.report.summary[::-1])
    assert [(r.defense, r.attack, r.style, r.baseline) for r in table_rows(report)] == [
        ("none", "inverting-gradients", "plain", False),
        ("none", "dlg", "plain", False),
        ("gaussian:std=0.1", "inverting-gradients", "adaptive", False),
        ("gaussian:std=0.1", "dlg", "plain", False),
        ("none", "mean-image", "plain", True),
        ("none", "random-guess", "plain", True),
    ]


def test_success_rate_comes_with_interval_and_counts(made):
    rate = dataclasses.replace(made.report.summary[0].success_rate, value=0.5, low=0.12, high=0.88, recovered=3)
    report = with_row(made.report, "dlg", "none", success_rate=rate)
    assert value_of(report, "Success rate", "dlg") == ("50 %", ("[12, 88 %]", "3 of 6"))


def test_differing_criteria_are_named_in_the_head_and_in_each_row(made):
    rate = dataclasses.replace(made.report.summary[0].success_rate, criterion="mse<=0.001")
    report = with_row(made.report, "dlg", "none", success_rate=rate)
    assert set(columns(report)[0].note.split(", ")) == {"ssim>=0.6", "mse<=0.001"}
    assert value_of(report, "Success rate", "dlg")[1][-1] == "mse<=0.001"
    assert value_of(report, "Success rate", "inverting-gradients")[1][-1] == "ssim>=0.6"


def test_trials_failures_and_flags_are_told(made):
    defended = "gaussian:std=0.1"
    assert value_of(made.report, "Trials", "dlg", defended) == ("3", ())
    assert value_of(made.report, "Failed", "dlg", defended) == ("1", ())
    assert value_of(made.report, "Flags", "dlg", defended) == ("noise-unaccounted", ())
    assert value_of(made.report, "Flags", "dlg") == NONE


def test_what_was_spent_is_told_in_seconds_steps_and_evaluations(made):
    assert value_of(made.report, "Spent", "dlg") == ("3.8 s", ("300 steps", "6,000 evaluations"))
    one = with_row(made.report, "dlg", "none", steps_median=Interval(1.0, 1.0, 1.0), seconds=0.0042)
    assert value_of(one, "Spent", "dlg") == ("0.0042 s", ("1 step", "6,000 evaluations"))


def test_a_report_that_did_not_count_steps_shows_its_seconds_alone(made):
    nothing = Interval(None, None, None)
    report = with_row(made.report, "dlg", "none", steps_median=nothing, evaluations_median=nothing)
    assert value_of(report, "Spent", "dlg") == ("3.8 s", ())


def test_a_score_comes_with_its_interval_where_there_is_one(made):
    metrics = {"psnr_mean_per_image": Interval(20.0, 18.0, 22.0), "ssim_mean_per_image": Interval(0.5, None, None)}
    report = with_row(made.report, "dlg", "none", metrics=metrics)
    assert value_of(report, "PSNR, dB", "dlg") == ("20.0", ("[18.0, 22.0]",))
    assert value_of(report, "SSIM", "dlg") == ("0.500", ())
    assert value_of(report, "Label accuracy", "dlg") == NONE


def test_an_attack_that_could_not_run_keeps_its_reason(made):
    assert row_of(with_row(made.report, "dlg", "none", error="needs no pooling"), "dlg").error == "needs no pooling"
    assert row_of(made.report, "dlg").error is None


def test_the_most_exposed_record_is_told_by_score_and_place(made):
    worst = {"trial": 0, "record": 1, "mse": 0.01, "psnr": 20.0, "ssim": 0.9}
    report = with_row(made.report, "dlg", "none", worst=worst)
    assert value_of(report, "Most exposed record", "dlg") == ("SSIM 0.900", ("PSNR 20.0", "trial 0, record 1"))
    one = dataclasses.replace(report, scenario=dataclasses.replace(report.scenario, batch_size=1))
    assert value_of(one, "Most exposed record", "dlg")[1][-1] == "trial 0"


@pytest.mark.parametrize("worst", [{}, {"trial": None, "record": None, "ssim": None}])
def test_without_a_scored_record_none_is_most_exposed(made, worst):
    assert value_of(with_row(made.report, "dlg", "none", worst=worst), "Most exposed record", "dlg") == NONE


def test_floors_stand_beside_attacks_in_the_same_scores(made):
    floor = {
        "random-guess": {
            "label_accuracy_mean_per_trial": Interval(0.1, 0.0, 0.2),
            "psnr_mean_per_image": Interval(9.0, 8.0, 10.0),
            "ssim_mean_per_image": Interval(0.1, 0.05, 0.15),
        }
    }
    report = with_row(made.report, "dlg", "none", floor=floor)
    assert value_of(report, "Floor: random-guess", "dlg") == ("SSIM 0.100", ("[0.050, 0.150]", "PSNR 9.0"))
    assert value_of(report, "Floor: mean-image", "dlg") == NONE


def test_a_baseline_has_no_floor_beside_it(made):
    for name in ("random-guess", "mean-image"):
        assert value_of(made.report, f"Floor: {name}", "mean-image") == NONE


def with_worst(report, attack, defense, **scores):
    return with_row(report, attack, defense, worst={"trial": 2, "record": 0, **scores})


def test_the_most_exposed_record_of_all_is_the_best_recovered_one(made):
    report = with_worst(made.report, "inverting-gradients", "gaussian:std=0.1", ssim=0.9999, psnr=50.0, mse=1e-5)
    assert most_exposed(report) == (
        "Most exposed record: SSIM 1.000, PSNR 50.0, trial 2, record 0, "
        "by inverting-gradients, adaptive, against defense gaussian:std=0.1."
    )


def test_for_tables_the_smallest_error_is_the_most_exposed(make):
    report = with_worst(make("tabular", (30,)).report, "dlg", "gaussian:std=0.1", mse=1e-9)
    assert most_exposed(report).startswith("Most exposed record: MSE 1.00e−09, trial 2")
    assert "by dlg, plain, against defense gaussian:std=0.1" in most_exposed(report)


def undefended(report):
    """The same audit with nothing but the undefended update in it, which is then under test."""
    kept = tuple(c for c in report.verdict.configurations if c.defense == "none")
    rows = tuple(r for r in report.summary if r.defense == "none")
    return dataclasses.replace(report, summary=rows, verdict=dataclasses.replace(report.verdict, configurations=kept))


def test_the_most_exposed_record_is_looked_for_in_the_comparison_too(made):
    report = with_worst(made.report, "dlg", "none", ssim=1.0, psnr=99.0)
    assert most_exposed(report) == (
        "Most exposed record: SSIM 1.000, PSNR 99.0, trial 2, record 0, by dlg, plain, without defense, for comparison."
    )
    assert most_exposed(undefended(report)).endswith("by dlg, plain, without defense.")


def with_credible(report, attack, defense, worth):
    """The records of these rows are worth so much, whatever they score."""
    findings = tuple(
        dataclasses.replace(f, credible=(worth,) * len(f.records)) if (f.attack, f.defense) == (attack, defense) else f
        for f in report.findings
    )
    return dataclasses.replace(report, findings=findings)


def test_a_score_that_is_no_evidence_exposes_no_one(made):
    """A grey picture may come nearest of all; it is not a record that got out."""
    report = with_worst(undefended(made.report), "dlg", "none", ssim=1.0, psnr=99.0)
    assert "by inverting-gradients, plain" in most_exposed(with_credible(report, "dlg", "none", False))
    assert "by inverting-gradients, plain" in most_exposed(with_credible(report, "dlg", "none", None))
    for worth, why in ((False, "no evidence of a recovery"), (None, "too few other samples to exclude chance")):
        doubted = with_credible(with_credible(report, "dlg", "none", worth), "inverting-gradients", "none", worth)
        assert most_exposed(doubted) == (
            f"Nearest to any record: SSIM 1.000, PSNR 99.0, trial 2, record 0, by dlg, plain, without defense: {why}."
        )


@pytest.mark.parametrize(
    ("recovered", "met", "undecided", "said"),
    [
        (0, 5, 5, "5 by score, undecided"),
        (0, 5, 0, "5 by score, not credible"),
        (2, 5, 0, "3 more by score, not credible"),
        (0, 5, 2, "5 by score, undecided: 2"),
        (5, 5, 0, None),
        (5, None, 0, None),
    ],
)
def test_scores_that_do_not_count_stand_beside_those_that_do(made, recovered, met, undecided, said):
    rate = dataclasses.replace(made.report.summary[0].success_rate, recovered=recovered)
    report = with_row(made.report, "dlg", "none", success_rate=rate, met=met, undecided=undecided)
    small = value_of(report, "Success rate", "dlg")[1]
    assert (said in small) if said else not any("by score" in line for line in small)


def test_neither_a_baseline_nor_a_failed_attack_exposes_anyone(made):
    report = with_worst(undefended(made.report), "mean-image", "none", ssim=1.0, psnr=99.0)
    report = with_row(with_worst(report, "dlg", "none", ssim=1.0, psnr=99.0), "dlg", "none", error="lost")
    assert "by inverting-gradients, plain, without defense." in most_exposed(report)


def test_a_record_without_a_score_exposes_no_one(made):
    rows = tuple(dataclasses.replace(r, worst={"trial": 0, "record": 0, "ssim": None}) for r in made.report.summary)
    assert most_exposed(dataclasses.replace(made.report, summary=rows)) == ""


def test_a_guarantee_is_told_with_its_unit():
    promise = Guarantee(8.0, 1e-5, "client")
    assert guarantee_text(promise) == "Accounted guarantee: ε = 8, δ = 1e-05 per client."
    assert guarantee_text(None) == ""


def test_an_attack_on_labels_alone_claims_no_records_and_is_compared_by_labels(labels_only):
    row = next(r for r in table_rows(labels_only) if r.attack == "labels")
    values = dict(zip([c.heading for c in columns(labels_only)], row.values, strict=True))
    assert values["Success rate"] == ("–", ("claims no records",))
    assert values["Label accuracy"][0] == "96.9 %"
    assert values["Most exposed record"] == ("–", ())
    assert values["Floor: mean-image"] == ("Label accuracy 25 %", ("[20, 30 %]",))


def test_labels_that_are_proven_stand_beside_their_share(made):
    report = with_row(made.report, "dlg", "none", labels_proven=5)
    assert value_of(report, "Label accuracy", "dlg")[1][-1] == "5 proven"
    assert "proven" not in " ".join(value_of(made.report, "Label accuracy", "dlg")[1])


def test_what_was_solved_and_all_labels_right_stand_in_the_small_print(made):
    shares = {"asr_content_share_of_trials": Interval(0.5, 0.1, 0.9), "asr_label_share_of_trials": Interval(1, 0.3, 1)}
    rows = tuple(dataclasses.replace(row, metrics=dict(row.metrics) | shares) for row in made.report.summary)
    report = dataclasses.replace(made.report, summary=rows)
    assert len(columns(report)) == len(columns(made.report)), "no columns of their own"
    small = [line for _, lines in table_rows(report)[0].values for line in lines]
    assert {"solved 50 %", "[10, 90 %]", "all right 100 %", "[30, 100 %]"} <= set(small)


# --- records by exposure --------------------------------------------------------------------------


def with_exposure(made, *found: Exposure):
    return dataclasses.replace(made.report, exposure=found)


def test_the_most_exposed_come_first_with_their_place(made):
    (group,) = exposed(with_exposure(made, Exposure("none", ((0.1, -0.25), (0.9, 0.5)), 0.4)))
    assert group.records[0] == ("trial 1, record 0", "0.90")
    assert group.records[-1] == ("trial 0, record 1", "−0.25")
    assert group.agreement.endswith("recovered: +0.40.")


def test_equal_exposure_is_no_order(made):
    assert exposed(with_exposure(made, Exposure("none", ((1.0,), (1.0,)), None))) == []


def test_page_and_text_tell_it(made):
    report = with_exposure(made, Exposure("none", ((0.1, 0.3),), None))
    for text in (to_html(report), to_markdown(report)):
        assert "Records by exposure" in text
        assert "Too few records, or too little difference between them, to compare it with what was recovered." in text
    assert "Records by exposure" not in to_html(made.report)
