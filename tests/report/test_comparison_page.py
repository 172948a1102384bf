"""Two audits on one page: both tables, the differences, and nothing taken as markup."""

import dataclasses

from leakgauge.report import to_comparison

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"


def test_both_tables_and_the_differences_are_on_it(made):
    rows = tuple(
        dataclasses.replace(r, success_rate=dataclasses.replace(r.success_rate, value=0.0, recovered=0))
        for r in made.report.summary
    )
    text = to_comparison(made.report, dataclasses.replace(made.report, summary=rows), ("runs/a", "runs/b"))
    assert text.count('<table class="results">') == 2
    assert text.count("runs/a") >= 3
    assert "compared victim by victim" in text
    assert "both scenarios are the same" in text
    assert "−100.0" in text


def test_attacks_with_other_settings_name_them(made):
    findings = tuple(dataclasses.replace(f, spec=f"{f.attack}:steps=9") for f in made.report.findings)
    text = to_comparison(made.report, dataclasses.replace(made.report, findings=findings), ("a", "b"))
    assert "<small>first: dlg</small><small>second: dlg:steps=9</small>" in text


def test_what_cannot_be_compared_is_said_at_the_top(made, make):
    text = to_comparison(made.report, make("tabular", (30,)).report, ("a", "b"))
    assert "Not comparable:" in text
    assert "no difference was computed" in text


def test_an_attack_that_only_one_audit_has_was_not_measured_in_the_other(made):
    fewer = dataclasses.replace(made.report, summary=made.report.summary[1:])
    assert "not measured" in to_comparison(made.report, fewer, ("a", "b"))


def test_an_attack_that_could_not_run_or_claims_no_records_says_so(made, labels_only):
    failed = dataclasses.replace(made.report.summary[1], error="needs no pooling")
    report = dataclasses.replace(labels_only, summary=(labels_only.summary[0], failed, *labels_only.summary[2:]))
    text = to_comparison(report, report, ("a", "b"))
    assert "could not run" in text
    assert "claims no records" in text


def test_everything_user_given_is_escaped(made):
    scenario = dataclasses.replace(made.report.scenario, data=HOSTILE, weights=HOSTILE)
    summary = tuple(dataclasses.replace(r, attack=HOSTILE, defense=HOSTILE) for r in made.report.summary)
    report = dataclasses.replace(made.report, scenario=scenario, summary=summary)
    text = to_comparison(made.report, report, (HOSTILE, HOSTILE))
    assert text.count("<script") == 1
    assert "<img" not in text
    assert "http" not in text.replace("http-equiv", "")


def test_the_same_audits_give_the_same_bytes(made):
    assert to_comparison(made.report, made.report, ("a", "b")) == to_comparison(made.report, made.report, ("a", "b"))
