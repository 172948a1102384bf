"""The gate: a quality that no record, or with some confidence no more than a share of them, may reach."""

import dataclasses

import pytest

from leakgauge.errors import BadInput
from leakgauge.types import Finding
from leakgauge.verdict.gate import Gate, gate_result


def found(attack: str, ssims, *, defense: str = "none", adaptive: bool = False):
    """One finding per trial, one record each."""
    return [
        Finding(attack, defense, adaptive, t, t, {"ssim": s}, ({"ssim": s, "psnr": 20.0, "mse": 0.01},))
        for t, s in enumerate(ssims)
    ]


@pytest.mark.parametrize("text", ["ssim=0.5", "psnr=20", "mse=1e-3"])
def test_a_gate_is_a_metric_and_a_number(text):
    name, value = text.split("=")
    assert Gate.parse(text) == Gate(name, float(value))


def test_confidence_and_share_bring_one_another():
    assert Gate.parse("ssim=0.5,confidence=0.9") == Gate("ssim", 0.5, 0.9, 0.05)
    assert Gate.parse("psnr=20,share=0.1") == Gate("psnr", 20.0, 0.95, 0.1)
    assert str(Gate.parse("ssim=0.5,share=0.1,confidence=0.9")) == "ssim=0.5,confidence=0.9,share=0.1"
    assert str(Gate.parse("ssim=0.5")) == "ssim=0.5"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sim=0.5", "did you mean 'ssim'"),
        ("ssim", "from -1 to 1, got 'ssim'"),
        ("ssim=2", "ssim=NUMBER, from -1 to 1"),
        ("mse=-1", "mse=NUMBER, from 0"),
        ("ssim=high", "=NUMBER, from"),
        ("ssim=nan", "=NUMBER, from"),
        ("psnr=inf", "=NUMBER, from"),
        ("", "gate metric"),
        ("ssim=0.5,confidence=95", "gate confidence must be between 0 and 1"),
        ("ssim=0.5,share=0", "gate share must be between 0 and 1"),
        ("ssim=0.5,share=x", "gate share must be between 0 and 1"),
        ("ssim=0.5,confidance=0.9", "did you mean 'confidence'"),
        ("ssim=0.5,", "gate setting"),
    ],
)
def test_a_gate_that_could_never_shut_is_refused(text, message):
    with pytest.raises(BadInput, match=message):
        Gate.parse(text)


def test_reaching_the_threshold_counts_in_the_metrics_own_direction():
    assert Gate("ssim", 0.5).rule.reached(0.5)
    assert not Gate("ssim", 0.5).rule.reached(0.49)
    assert Gate("mse", 0.01).rule.reached(0.01)
    assert not Gate("mse", 0.01).rule.reached(0.02)
    assert not Gate("ssim", 0.5).rule.reached(None)


def test_one_record_is_enough_to_fail_a_gate_without_a_confidence():
    findings = found("dlg", [0.1, 0.6, 0.2])
    failed = gate_result(Gate("ssim", 0.5), findings, ["none"])
    assert not failed.passed
    assert failed.sentence == (
        "Gate ssim=0.5 failed: 1 of 3 records reaches it; the most exposed is dlg on none, trial 1, record 0: 0.600."
    )
    held = gate_result(Gate("ssim", 0.7), findings, ["none"])
    assert held.passed
    assert "held: 0 of 3 records reach it, so up to 70.8% of all records may (95% confidence)" in held.sentence


def test_a_gate_with_a_confidence_asks_for_enough_records_and_says_how_many():
    gate = Gate.parse("ssim=0.5,confidence=0.95")
    few = gate_result(gate, found("dlg", [0.1] * 6), ["none"])
    assert not few.passed
    assert few.at_most == pytest.approx(1 - 0.025 ** (1 / 6))
    assert "0 of 6 records reach it, but up to 45.9% of all records may" in few.sentence
    assert "to show 5.0% attack 72 records (--trials)" in few.sentence
    assert gate_result(gate, found("dlg", [0.1] * 72), ["none"]).passed
    assert not gate_result(gate, found("dlg", [0.1] * 58), ["none"]).passed


def test_a_gate_with_a_share_lets_a_few_through():
    gate = Gate.parse("ssim=0.5,share=0.1")
    assert gate_result(gate, found("dlg", [0.6] * 2 + [0.1] * 98), ["none"]).passed
    over = gate_result(gate, found("dlg", [0.6] * 8 + [0.1] * 92), ["none"])
    assert not over.passed
    assert "8 of 100 records reach it" in over.sentence
    assert "10.0% are accepted; the most exposed is dlg" in over.sentence


def test_attacks_together_are_one_attacker_and_a_record_counts_once():
    findings = (
        found("dlg", [0.6, 0.1, 0.1]) + found("idlg", [0.1, 0.7, 0.1], adaptive=True) + found("cpl", [0.8, 0.1, 0.1])
    )
    result = gate_result(Gate("ssim", 0.5), findings, ["none"])
    assert (result.reached, result.records) == (2, 3)


def test_the_worst_configuration_decides():
    findings = found("dlg", [0.1] * 4, defense="a") + found("dlg", [0.1] * 3 + [0.9], defense="b")
    result = gate_result(Gate("ssim", 0.5), findings, ["a", "b"])
    assert (result.passed, result.defense) == (False, "b")
    assert gate_result(Gate("ssim", 0.5), findings, ["a"]).passed


@pytest.mark.parametrize("findings", [[], [Finding("linear", "none", False, 0, 0, {}, error="no")]])
def test_a_gate_does_not_hold_where_nothing_was_measured(findings):
    result = gate_result(Gate("ssim", 0.5), findings, ["none"])
    assert not result.passed
    assert "could be scored" in result.sentence


def test_a_gate_does_not_hold_where_one_configuration_was_not_measured():
    result = gate_result(Gate("ssim", 0.5), found("dlg", [0.1], defense="a"), ["a", "b"])
    assert not result.passed
    assert "on b could be scored" in result.sentence


def test_small_errors_are_the_exposed_ones_in_a_gate_on_mse():
    records = ({"mse": 1e-5}, {"mse": 0.5})
    findings = [dataclasses.replace(found("linear", [0.1])[0], records=records)]
    result = gate_result(Gate("mse", 1e-3), findings, ["none"])
    assert (result.reached, result.records) == (1, 2)
    assert result.sentence.endswith("record 0: 1.00e-05.")
