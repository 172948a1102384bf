"""Markdown: the verdict first, every row in the table, nothing user-given read as markup."""

import dataclasses
import tomllib

from leakgauge.report import to_markdown
from leakgauge.types import Scenario


def test_verdict_stands_above_everything_else(made):
    text = to_markdown(made.report)
    assert text.index("**Leaks.**") < text.index("## What was attacked") < text.index("## Attacks and defences")
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


def test_flags_come_with_reason_and_remedy(made):
    text = to_markdown(made.report)
    assert "**noise-unaccounted**: Noise without an accountant. What to do: Use dp-sgd." in text


def test_labels_given_are_confessed(made):
    told = to_markdown(dataclasses.replace(made.report, told=("labels",)))
    assert "The true labels were given" in told
    assert "an oracle" in told


def test_gate_interruption_and_errors_are_said(made):
    gate = {"metric": "ssim", "threshold": 0.5, "passed": False, "sentence": "0.9 is above 0.5."}
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
