"""Markdown: the verdict first, every row in the table, nothing user-given read as markup."""

import dataclasses
import tomllib

from leakgauge.report import to_markdown
from leakgauge.types import GateResult, Scenario


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
