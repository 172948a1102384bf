"""Markdown: the verdict first, every row in the table, nothing user-given read as markup."""

from __future__ import annotations

import dataclasses
import tomllib

from leakgauge.audit.run import run_audit
from leakgauge.report import to_markdown, to_summary
from leakgauge.report.markdown import AuditedRound, rounds_page
from leakgauge.report.numbers import percent
from leakgauge.types import Finding, GateResult, Scenario


def test_verdict_stands_above_everything_else(made):
    text = to_markdown(made.report)
    assert text.index("**Leaks.**") < text.index("## What was attacked") < text.index("## Attacks and defenses")
    assert "Most exposed record: SSIM" in text
    assert "The true labels were not given" in text
    assert "ε = 8, δ = 1e-05 per sample" in text


def test_table_has_a_row_per_cell_with_interval_and_both_floors(made):
    lines = [line for line in to_markdown(made.report).splitlines() if line.startswith("|")]
    assert len(lines) == 2 + len(made.report.summary)
    assert "Floor: random-guess" in lines[0]
    assert "Floor: mean-image" in lines[0]
    assert len({line.replace("\\|", "").count("|") for line in lines}) == 1
    adaptive = next(line for line in lines if "inverting-gradients, adaptive" in line)
    assert adaptive.count("\\[0.050, 0.150\\]") == 2


def test_each_row_says_what_it_spent(made):
    lines = [line for line in to_markdown(made.report).splitlines() if line.startswith("|")]
    assert lines[0].endswith("| Spent (counts per victim) |")
    assert all(line.endswith("| 3.8 s · 300 steps · 6,000 evaluations |") for line in lines[2:])


def test_quality_against_seconds_is_told_per_defense(made):
    part = to_markdown(made.report).split("## Quality against seconds")[1].split("##")[0]
    none, defended, floors = (line for line in part.splitlines() if line.startswith("- "))
    assert none.startswith("- none: dlg, plain: ")
    assert " dB in 1.2 s; inverting-gradients, plain: " in none
    assert defended.startswith("- gaussian:std=0.1: dlg, plain: ")
    assert floors == "- floors: random-guess: 9.0 dB; mean-image: 9.0 dB"
    assert "wall clock" in part


def test_without_times_there_is_no_quality_against_them(made):
    findings = tuple(dataclasses.replace(f, seconds=0.0) for f in made.report.findings)
    assert "Quality against seconds" not in to_markdown(dataclasses.replace(made.report, findings=findings))


def test_flags_come_with_reason_and_remedy(made):
    text = to_markdown(made.report)
    assert "**noise-unaccounted**: Noise without an accountant. What to do: Use dp-sgd." in text


def test_labels_given_are_confessed(made):
    told = to_markdown(dataclasses.replace(made.report, facts=("labels",)))
    assert "The true labels were given" in told
    assert "an oracle" in told


def test_gate_interruption_and_errors_are_said(made):
    gate = GateResult("ssim", 0.5, False, "0.9 is above 0.5.")
    rows = (dataclasses.replace(made.report.summary[0], error="needs | no pooling"), *made.report.summary[1:])
    verdict = dataclasses.replace(made.report.verdict, gate=gate)
    report = dataclasses.replace(made.report, verdict=verdict, summary=rows, interrupted=True)
    text = to_markdown(report)
    assert "**Gate failed.** 0.9 is above 0.5." in text
    assert "Interrupted" in text
    assert "could not run: needs \\| no pooling" in text


def test_user_given_text_is_not_markup(make):
    text = to_markdown(make(model="<script>alert(1)</script>|*x*\n# y").report)
    assert "\\<script\\>alert(1)\\</script\\>\\|\\*x\\* \\# y" in text.splitlines()[0]


def test_scenario_in_the_text_repeats_the_run(made):
    block = to_markdown(made.report).split("```toml\n")[1].split("```")[0]
    assert Scenario.from_mapping(tomllib.loads(block)) == made.report.scenario


# --- on one screen --------------------------------------------------------------------------------


def test_it_says_verdict_gate_and_both_sides():
    scenario = Scenario(
        data="digits",
        model="mlp:hidden=16",
        trials=6,
        attacks=("linear",),
        defenses=("dp-sgd:sigma=5",),
        gate="ssim=0.5,confidence=0.95",
    )
    report, _ = run_audit(scenario)
    lines = to_summary(report).splitlines()
    assert lines[0] == "### Leakage audit: mlp:hidden=16 on digits"
    assert any(line.startswith("**Gate failed.** Gate ssim=0.5,confidence=0.95,share=0.05 failed") for line in lines)
    (bare,) = (line for line in lines if line.startswith("| none "))
    assert bare == "| none | leaks | 6 of 6 | 54.1 % | no guarantee | linear |"
    (guarded,) = (line for line in lines if line.startswith("| dp-sgd"))
    gamma = report.verdict.configurations[1].upper.gamma
    assert f"| 0 of 6 | 0 % | {percent(gamma)} |" in guarded
    assert lines[-1].startswith("<sub>6 updates of 1 record, seed 0; leakgauge ")


def test_old_reports_and_interruptions_are_summarised(made):
    text = to_summary(dataclasses.replace(made.report, interrupted=True))
    assert "**Interrupted: finished cells only.**" in text
    assert "| gaussian:std=0.1 |" in text


def test_nothing_user_given_breaks_the_table(make):
    made = make(model="a|b<script>\n# c")
    first = to_summary(made.report).splitlines()[0]
    assert first == r"### Leakage audit: a\|b\<script\> \# c on photos32"


# --- rounds of a recording ------------------------------------------------------------------------


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
