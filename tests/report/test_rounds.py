"""The page of all audited rounds says what each came to, what could not be read, and lets no name be markup."""

from __future__ import annotations

import dataclasses

from leakgauge.report.rounds import AuditedRound, rounds_page
from leakgauge.types import Finding


def found(trial):
    return Finding("linear", "none", False, trial, 0, {}, certified=2)


def test_each_round_has_its_verdict_its_clients_and_its_report(blind, made):
    scored = dataclasses.replace(made.report, clients=("x", "y", "z"))
    rounds = [AuditedRound("round-00001", (), blind(found(0)).report), AuditedRound("round-00002", (), scored)]
    text = rounds_page("DIR", 7, rounds)
    assert "left out 7 later" in text
    assert "2 of 4 records" in text
    assert "- Clients: x, y, z" in text
    assert "[Report](round-00002/report.html)" in text
    assert made.report.verdict.sentence[:20] in text


def test_what_cannot_be_read_stands_there_with_the_reason():
    text = rounds_page("DIR", 0, [AuditedRound("round-00001", (("update-00001", "zeros only"),))])
    assert "No update could be read." in text
    assert "- Not read: update-00001: zeros only" in text
    assert "left out" not in text
    refused = rounds_page("DIR", 0, [AuditedRound("round-00001", refused="the batch is another one")])
    assert "Not audited: the batch is another one" in refused


def test_names_are_no_markup(blind):
    text = rounds_page("D|R", 0, [AuditedRound("r", (), blind(found(0), clients=("<script>|[x](y)\n`",)).report)])
    assert "<script>" not in text
    assert "\\<script\\>\\|\\[x\\](y) \\`" in text
    assert "D\\|R" in text


def test_as_plain_values_it_holds_the_whole_report(blind):
    one = AuditedRound("r", (("u", "why"),), blind(found(0)).report)
    plain = one.as_dict()
    assert plain["unreadable"] == [{"name": "u", "error": "why"}]
    assert plain["report"]["clients"] == ["a", "b"]
    assert AuditedRound("r").as_dict()["report"] is None
