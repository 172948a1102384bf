"""The short summary: verdict, gate and both sides of every configuration on one screen."""

import dataclasses

from leakgauge.audit.run import run_audit
from leakgauge.report import to_summary
from leakgauge.report.numbers import percent
from leakgauge.types import Scenario


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
