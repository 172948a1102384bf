"""The report of an audit without the private samples: proofs, labels, pictures, and no markup of others."""

from __future__ import annotations

import dataclasses

import torch

from leakgauge.report import from_json, render, write
from leakgauge.report.blind_page import client_rows, errors, to_blind_page
from leakgauge.types import Finding, Pictures


def finding(trial, certified=None, labels=(1, 2), objective=0.5, labels_proven=None, **more):
    return Finding(
        "peeling",
        "none",
        False,
        trial,
        0,
        {},
        objective=objective,
        flags=("no-ground-truth",),
        certified=certified,
        labels=labels,
        labels_proven=labels_proven,
        **more,
    )


def page(made):
    return to_blind_page(made.report, made.pictures)


def test_what_is_proven_counts_each_record_once(blind):
    said = page(blind(finding(0, 2), finding(0, 1), finding(1, 1)))
    assert "3 of 4 private records were recovered from the updates alone, each with a proof." in said
    assert "Not scored: no samples to compare with; proven: 3 of 4 records and 0 of 4 labels." in said
    assert 'class="banner bad"' in said


def test_without_a_proof_nothing_is_called_right(blind):
    said = page(blind(finding(0), finding(1, 0, None, None)))
    assert "Nothing is proven" in said
    assert 'class="banner warn"' in said
    assert "no-ground-truth" in said


def test_labels_that_the_updates_prove_are_not_called_nothing(blind):
    said = page(blind(finding(0, labels_proven=2), finding(0, labels_proven=1), finding(1, labels_proven=1)))
    assert "Labels are proven, no record is" in said
    assert "The updates prove 3 of 4 labels. No attack proved a recovered record right" in said
    assert "Nothing is proven" not in said
    both = page(blind(finding(0, 1, labels_proven=2), clients=("a",)))
    assert "1 of 2 private records was recovered from the update alone, with a proof." in both
    assert "The update also proves 2 of 2 labels." in both


def test_pictures_are_named_by_client_and_record(blind):
    assert "client b, record 2" in page(blind(finding(0)))


def test_pictures_sit_in_the_page_and_what_does_not_fit_is_counted(blind):
    said = page(blind(finding(0), size=40))
    assert said.count("data:image/png;base64,") == 64
    assert "16 more are in the run directory" in said
    assert said.count("http") == said.count("http-equiv"), "it asks nothing of any network"


def test_what_is_not_claimed_is_not_drawn_and_further_answers_are_not_either(blind):
    made = blind(finding(0, labels=(1, None, None)), size=3)
    (name,) = made.pictures.recovered
    drawn = made.pictures.recovered[name].clone()
    drawn[0, 1:] = drawn[1, 0] = torch.nan
    said = to_blind_page(made.report, Pictures(made.pictures.true, {name: torch.cat((drawn, drawn), 1)}))
    assert said.count("data:image/png;base64,") == 3
    assert "1 – –" in said


def test_names_of_clients_are_text(blind):
    said = page(blind(finding(0), clients=("<script>alert(1)</script>", "b")))
    assert "<script" not in said
    assert "&lt;script&gt;" in said
    assert "&lt;settled&gt;" in said


def test_an_attack_that_broke_off_is_told_once_and_has_no_row(blind):
    report = blind(*(dataclasses.replace(finding(t), error="does not fit") for t in (0, 1))).report
    assert client_rows(report) == []
    assert errors(report) == ["peeling: does not fit"]


def test_every_form_says_that_nothing_was_scored_and_none_that_nothing_leaks(blind):
    report = blind(finding(0), finding(1)).report
    for form in ("html", "markdown", "summary", "officer", "junit", "json"):
        text = render(report, None, form)
        assert "ot scored" in text, form
        assert "No leak found" not in text, form
        assert "no guarantee" not in text.lower(), form
    assert from_json(render(report, None, "json")) == report


def test_a_proven_record_fails_the_test_of_a_ci_server(blind):
    assert '<failure type="leak"' in render(blind(finding(0, 2)).report, None, "junit")
    assert "<failure" not in render(blind(finding(0)).report, None, "junit")


def test_labels_that_were_read_are_for_the_owner_of_the_run(blind, tmp_path):
    files = write(blind(finding(0)).report, None, tmp_path)
    for form in ("html", "json", "markdown"):
        assert files[form].stat().st_mode & 0o077 == 0, form
    assert "| peeling | plain | a |" in files["markdown"].read_text(encoding="utf-8")
    assert "1 2" not in files["officer"].read_text(encoding="utf-8")
