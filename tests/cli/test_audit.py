"""`leakgauge audit`: a scenario from TOML, flags over it, every attack against every configuration, the gate."""

from __future__ import annotations

import json

import pytest

SCENARIO = """
model = "mlp:hidden=16"
data = "digits"
trials = 2
seed = 3
attacks = ["linear"]
defenses = ["gaussian:std=5"]

[local]
kind = "fedavg"
lr = 0.5
"""
OWN_ATTACK = """
from dataclasses import dataclass
from typing import ClassVar

from leakgauge.attacks.random_guess import RandomGuess


@dataclass(frozen=True)
class Mine(RandomGuess):
    name: ClassVar[str] = "mine"
    baseline: ClassVar[bool] = False
"""


@pytest.fixture
def scenario(tmp_path):
    (tmp_path / "scenario.toml").write_text(SCENARIO)
    return "scenario.toml"


def cells(outcome):
    return [(row["attack"], row["defense"], row["adaptive"]) for row in outcome.json["summary"]]


def test_scenario_file_is_run_as_written(leakgauge, scenario):
    outcome = leakgauge("audit", scenario, "--json", "--out", "run")
    assert outcome.code == 0
    assert cells(outcome) == [
        ("mean-image", "none", False),
        ("random-guess", "none", False),
        ("linear", "none", False),
        ("linear", "gaussian:std=5", False),
        ("linear", "gaussian:std=5", True),
    ]
    report = outcome.json
    assert report["scenario"]["local"] | {"kind": "fedavg", "lr": 0.5} == report["scenario"]["local"]
    assert [f["seed"] for f in report["findings"][:2]] == [3, 4]
    bare, defended = report["verdict"]["configurations"]
    assert (bare["defense"], bare["leaks"]) == ("none", True)
    assert (defended["defense"], defended["leaks"]) == ("gaussian:std=5", False)
    assert report["verdict"]["leaks"] is False, "the configuration under test decides, not the bare one beside it"


def test_flags_override_the_file_and_leave_the_rest(leakgauge, scenario):
    outcome = leakgauge("audit", scenario, "--trials", 1, "--defenses", "none", "--local", "kind=fedsgd", "--seed", 0,
                        "--json", "--out", "run")  # fmt: skip
    told = outcome.json["scenario"]
    assert (told["trials"], told["seed"], told["defenses"]) == (1, 0, [])
    assert told["local"]["kind"] == "fedsgd"
    assert told["model"] == "mlp:hidden=16"
    assert cells(outcome)[2:] == [("linear", "none", False)]


@pytest.mark.parametrize(
    ("gate", "code"),
    [("ssim=0.5", 1), ("psnr=30", 1), ("mse=0.001", 1)],
)
def test_gate_fails_with_1_when_a_record_reaches_it(leakgauge, small, gate, code):
    outcome = leakgauge("audit", *small, "--attacks", "linear", "--defenses", "none", "--gate", gate, "--json",
                        "--out", "run")  # fmt: skip
    assert outcome.code == code
    assert outcome.json["verdict"]["gate"]["passed"] is False


def test_gate_holds_with_0_and_looks_at_the_configuration_under_test(leakgauge, small):
    outcome = leakgauge("audit", *small, "--attacks", "linear", "--defenses", "gaussian:std=5", "--gate", "ssim=0.9",
                        "--json", "--out", "run")  # fmt: skip
    assert outcome.code == 0
    assert outcome.json["verdict"]["gate"]["passed"] is True


def test_gate_with_a_confidence_asks_for_enough_records(leakgauge, small):
    """None of two records reached it, which shows next to nothing; forty show that no more than 7.2 % do."""
    asked = ("--attacks", "linear", "--defenses", "gaussian:std=5", "--gate", "ssim=0.9,confidence=0.95,share=0.08")
    few = leakgauge("audit", *small, *asked, "--out", "few")
    assert few.code == 1
    assert "0 of 2 records reach it, but up to 77.6% of all records may" in few.out
    enough = leakgauge("audit", *small, *asked, "--trials", 40, "--out", "enough")
    assert enough.code == 0
    assert "held: 0 of 40 records reach it, so up to 7.2%" in enough.out


def test_gate_that_makes_no_sense_is_refused(leakgauge, small, one_line):
    assert "gate confidence must be between 0 and 1" in one_line(
        leakgauge("audit", *small, "--gate", "ssim=0.5,confidence=2", "--out", "run")
    )


def test_gate_that_failed_is_said_to_the_person_too(leakgauge, small):
    outcome = leakgauge("audit", *small, "--attacks", "linear", "--defenses", "none", "--gate", "ssim=0.5",
                        "--out", "run")  # fmt: skip
    assert outcome.code == 1
    assert "Gate ssim=0.5 failed" in outcome.out


@pytest.mark.parametrize(
    "unmeasured",
    [
        ("--data", "breast-cancer", "--model", "mlp"),  # tables have no SSIM
        ("--data", "digits", "--model", "lenet-dlg"),  # linear does not fit: no record was attacked at all
    ],
    ids=["no such score", "no attack fits"],
)
def test_gate_never_holds_on_something_that_was_not_measured(leakgauge, unmeasured):
    outcome = leakgauge("audit", *unmeasured, "--trials", 1, "--attacks", "linear", "--defenses", "none",
                        "--gate", "ssim=0.5", "--out", "run")  # fmt: skip
    assert outcome.code != 0, "CI would take this for a pass"


def test_attack_that_does_not_fit_stays_in_the_table_as_failed(leakgauge):
    outcome = leakgauge("audit", "--model", "lenet-dlg", "--data", "digits", "--trials", 2, "--attacks", "linear",
                        "--defenses", "none", "--json", "--out", "run")  # fmt: skip
    assert outcome.code == 0
    row = outcome.json["summary"][-1]
    assert (row["attack"], row["trials"], row["failed"]) == ("linear", 2, 2)
    assert row["error"].startswith("not applicable: ")


def test_two_settings_of_one_attack_stay_two_rows(leakgauge, small):
    """Otherwise trials are counted twice and two different attacks share one mean."""
    outcome = leakgauge("audit", *small, "--attacks", "linear linear:combine=least-squares", "--defenses", "none",
                        "--json", "--out", "run")  # fmt: skip
    trials = {row["attack"]: row["trials"] for row in outcome.json["summary"] if row["floor"]}
    assert trials == {"linear": 2, "linear:combine=least-squares": 2}


def test_configuration_named_twice_is_not_counted_twice(leakgauge, small):
    outcome = leakgauge("audit", *small, "--attacks", "linear", "--defenses", "prune prune", "--json", "--out", "run")
    assert outcome.code == 2 or all(row["trials"] == 2 for row in outcome.json["summary"])


def test_own_attack_from_a_file_is_reported(leakgauge, small, tmp_path):
    (tmp_path / "own.py").write_text(OWN_ATTACK)
    outcome = leakgauge("audit", *small, "--attacks", "own.py:Mine", "--defenses", "none", "--json", "--out", "run")
    assert outcome.code == 0, outcome.err
    assert ("mine", "none", False) in cells(outcome)


def test_chain_with_a_plus_in_a_number_is_understood(leakgauge, small):
    outcome = leakgauge("audit", *small, "--attacks", "linear", "--defenses", "gaussian:std=1e+1", "--json",
                        "--out", "run")  # fmt: skip
    assert outcome.code == 0, outcome.err


def test_report_on_disk_is_complete_and_private_parts_are_for_the_owner(leakgauge, small, tmp_path, files_in):
    leakgauge("audit", *small, "--attacks", "linear", "--defenses", "prune", "--out", "run")
    run = tmp_path / "run"
    written = {"report.html", "report.json", "report.md", "report.xml", "summary.md", "officer.html", "pairs.png"}
    assert written <= set(files_in(run))
    assert not [name for name in files_in(run) if name.endswith(".part")]
    for private in (run / "truth.safetensors", *(run / "cells").iterdir()):
        assert private.stat().st_mode & 0o077 == 0
    assert json.loads((run / "report.json").read_text())["interrupted"] is False


def test_a_trained_model_and_its_precision_come_from_file_and_flags(leakgauge, scenario, tmp_path):
    (tmp_path / scenario).write_text(f"{SCENARIO}\n[training]\nrounds = 2\nclients = 3\n")
    outcome = leakgauge("audit", scenario, "--precision", "float64", "--json", "--out", "run")
    assert outcome.code == 0, outcome.err
    told = outcome.json["scenario"]
    assert (told["training"]["rounds"], told["training"]["clients"], told["precision"]) == (2, 3, "float64")
    other = leakgauge("audit", scenario, "--training", "rounds=1,lr=0.1", "--json", "--out", "run").json["scenario"]
    assert (other["training"]["rounds"], other["training"]["lr"], other["precision"]) == (1, 0.1, "float32")


def test_help_has_an_example(leakgauge):
    outcome = leakgauge("audit", "--help")
    assert outcome.code == 0
    assert "Example" in outcome.out
    assert "leakgauge audit --model" in outcome.out
