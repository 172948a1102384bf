"""`leakgauge audit`: a scenario from TOML, flags over it, every attack against every configuration, the gate."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib

import pytest
import torch
from torch import nn

from leakgauge.cli.audit import TEMPLATE
from leakgauge.types import SECTIONS, Scenario

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
    outcome = leakgauge(
        "audit",
        scenario,
        "--trials",
        1,
        "--defenses",
        "none",
        "--local",
        "kind=fedsgd",
        "--seed",
        0,
        "--json",
        "--out",
        "run",
    )
    told = outcome.json["scenario"]
    assert (told["trials"], told["seed"], told["defenses"]) == (1, 0, [])
    assert told["local"]["kind"] == "fedsgd"
    assert told["model"] == "mlp:hidden=16"
    assert cells(outcome)[2:] == [("linear", "none", False)]


@pytest.mark.parametrize(("gate", "code"), [("ssim=0.5", 1), ("psnr=30", 1), ("mse=0.001", 1)])
def test_gate_fails_with_1_when_a_record_reaches_it(leakgauge, small, gate, code):
    outcome = leakgauge(
        "audit", *small, "--attacks", "linear", "--defenses", "none", "--gate", gate, "--json", "--out", "run"
    )
    assert outcome.code == code
    assert outcome.json["verdict"]["gate"]["passed"] is False


def test_gate_holds_with_0_and_looks_at_the_configuration_under_test(leakgauge, small):
    outcome = leakgauge(
        "audit",
        *small,
        "--attacks",
        "linear",
        "--defenses",
        "gaussian:std=5",
        "--gate",
        "ssim=0.9",
        "--json",
        "--out",
        "run",
    )
    assert outcome.code == 0
    assert outcome.json["verdict"]["gate"]["passed"] is True


def test_gate_with_a_confidence_asks_for_enough_records(leakgauge, small):
    """None of two records reached it, which shows next to nothing; forty show that no more than 8.8 % do."""
    asked = ("--attacks", "linear", "--defenses", "gaussian:std=5", "--gate", "ssim=0.9,confidence=0.95,share=0.09")
    few = leakgauge("audit", *small, *asked, "--out", "few")
    assert few.code == 1
    assert "0 of 2 records reach it, but up to 84.2% of all records may" in few.out
    enough = leakgauge("audit", *small, *asked, "--trials", 40, "--out", "enough")
    assert enough.code == 0
    assert "held: 0 of 40 records reach it, so up to 8.8%" in enough.out


def test_gate_that_makes_no_sense_is_refused(leakgauge, small, one_line):
    assert "gate confidence must be between 0 and 1" in one_line(
        leakgauge("audit", *small, "--gate", "ssim=0.5,confidence=2", "--out", "run")
    )


def test_gate_that_failed_is_said_to_the_person_too(leakgauge, small):
    outcome = leakgauge(
        "audit", *small, "--attacks", "linear", "--defenses", "none", "--gate", "ssim=0.5", "--out", "run"
    )
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
    outcome = leakgauge(
        "audit",
        *unmeasured,
        "--trials",
        1,
        "--attacks",
        "linear",
        "--defenses",
        "none",
        "--gate",
        "ssim=0.5",
        "--out",
        "run",
    )
    assert outcome.code != 0, "CI would take this for a pass"


def test_attack_that_does_not_fit_stays_in_the_table_as_failed(leakgauge):
    outcome = leakgauge(
        "audit",
        "--model",
        "lenet-dlg",
        "--data",
        "digits",
        "--trials",
        2,
        "--attacks",
        "linear",
        "--defenses",
        "none",
        "--json",
        "--out",
        "run",
    )
    assert outcome.code == 0
    row = outcome.json["summary"][-1]
    assert (row["attack"], row["trials"], row["failed"]) == ("linear", 2, 2)
    assert row["error"].startswith("not applicable: ")


def test_two_settings_of_one_attack_stay_two_rows(leakgauge, small):
    """Otherwise trials are counted twice and two different attacks share one mean."""
    outcome = leakgauge(
        "audit", *small, "--attacks", "dlg:steps=1 dlg:steps=2", "--defenses", "none", "--json", "--out", "run"
    )
    trials = {row["attack"]: row["trials"] for row in outcome.json["summary"] if row["floor"]}
    assert trials == {"dlg:steps=1": 2, "dlg:steps=2": 2}


def test_configuration_named_twice_is_not_counted_twice(leakgauge, small):
    outcome = leakgauge("audit", *small, "--attacks", "linear", "--defenses", "prune prune", "--json", "--out", "run")
    assert outcome.code == 2 or all(row["trials"] == 2 for row in outcome.json["summary"])


def test_own_attack_from_a_file_is_reported(leakgauge, small, tmp_path):
    (tmp_path / "own.py").write_text(OWN_ATTACK)
    outcome = leakgauge("audit", *small, "--attacks", "own.py:Mine", "--defenses", "none", "--json", "--out", "run")
    assert outcome.code == 0, outcome.err
    assert ("mine", "none", False) in cells(outcome)


def test_chain_with_a_plus_in_a_number_is_understood(leakgauge, small):
    outcome = leakgauge(
        "audit", *small, "--attacks", "linear", "--defenses", "gaussian:std=1e+1", "--json", "--out", "run"
    )
    assert outcome.code == 0, outcome.err


def test_report_on_disk_is_complete_and_private_parts_are_for_the_owner(leakgauge, small, tmp_path, files_in):
    leakgauge("audit", *small, "--attacks", "linear", "--defenses", "prune", "--out", "run")
    run = tmp_path / "run"
    written = {"report.html", "report.json", "report.md", "report.xml", "summary.md", "officer.html", "pairs.png"}
    assert written <= set(files_in(run))
    assert not [name for name in files_in(run) if name.endswith(".part")]
    assert not (run / "truth.safetensors").exists()
    for private in (run / "report.html", run / "pairs.png", *(run / "cells").iterdir()):
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


# --- suites, the ledger, and updates of one's own ---------------------------------------------------


def test_the_suite_that_ran_is_said_and_so_is_what_it_left_out(leakgauge, small, small_suite):
    small_suite("standard", 2, ("labels", "linear", "idlg:steps=1"), ("imprint",))
    asked = ("audit", *small, "--defenses", "none", "--suite", "standard", "--out", "run")
    outcome = leakgauge(*asked, "--json")
    assert outcome.json["scenario"]["suite"] == "standard"
    assert [(s["attack"], s["defense"]) for s in outcome.json["skipped"]] == [("imprint", "all"), ("idlg", "none")]
    assert "not run against none: idlg: not needed: linear recovered every record" in leakgauge(*asked).out


def test_a_suite_that_is_none_is_refused(leakgauge, small, one_line):
    assert "suite must be one of quick, standard, full" in one_line(leakgauge("audit", *small, "--suite", "quik"))


def test_the_ledger_is_printed_and_in_the_json(leakgauge, small):
    asked = ("audit", *small, "--attacks", "linear", "--defenses", "none", "--ledger", "--out", "run")
    facts = [a["fact"] for a in leakgauge(*asked, "--json").json["ledger"]]
    assert facts == ["input-spec", "labels", "batchnorm-statistics", "public-data", "learning-rate", "num-samples"]
    assert "what it changed" in leakgauge(*asked).out


OWN = """
import torch
from torch import nn


def net():
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 4), nn.ReLU(), nn.Linear(4, 3))


def batch():
    return torch.rand(1, 1, 3, 4, generator=torch.Generator().manual_seed(1)), torch.tensor([1])


def nothing():
    return torch.rand(0, 1, 3, 4), torch.zeros(0, dtype=torch.int64)
"""


@pytest.fixture
def own(tmp_path):
    """Writes my.py, model.pt and update.pt, the update changed as asked; gives the command."""

    def write(change=lambda t: t, **more):
        (tmp_path / "my.py").write_text(OWN)
        names: dict = {}
        exec(OWN, names)
        torch.manual_seed(0)  # with others all four units may be dead, and then nothing leaks
        model = names["net"]()
        inputs, labels = names["batch"]()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        torch.save(model.state_dict(), tmp_path / "model.pt")
        torch.save({n: change(p.grad) for n, p in model.named_parameters()} | more, tmp_path / "update.pt")
        return (
            "audit",
            "--model",
            "my.py:net",
            "--weights",
            "model.pt",
            "--update",
            "update.pt",
            "--data",
            "my.py:batch",
            "--attacks",
            "linear",
            "--out",
            "run",
        )

    return write


def test_a_saved_update_is_audited_against_its_batch(leakgauge, own):
    outcome = leakgauge(*own(), "--gate", "ssim=0.5", "--json")
    assert outcome.code == 1, "the gate works as for simulated clients"
    assert outcome.json["scenario"]["update"] == "update.pt"
    assert outcome.json["verdict"]["leaks"] is True


@pytest.mark.parametrize(
    ("change", "more", "flags", "said"),
    [
        (lambda t: t, {"9.weight": torch.ones(2)}, (), "check that --model is the model this update belongs to"),
        (torch.zeros_like, {}, (), "zeros only"),
        (lambda t: t * torch.nan, {}, (), "NaN"),
        (lambda t: -0.1 * t, {}, ("--local", "kind=fedavg,lr=0.4"), "say --local lr=0.1"),
        (lambda t: t, {}, ("--data", "my.py:nothing"), "labels of 'nothing'"),
        (lambda t: t, {}, ("--update", "gone.pt"), "no such file"),
        (lambda t: t, {}, ("--batch-size", "5"), "that batch says how large it is"),
    ],
    ids=["another model", "zeros", "nan", "learning rate", "empty data", "no file", "batch size"],
)
def test_a_bad_update_is_one_line_and_leaves_nothing(leakgauge, own, tmp_path, one_line, change, more, flags, said):
    assert said in one_line(leakgauge(*own(change, **more), *flags))
    assert not (tmp_path / "run").exists()


def test_a_wrong_learning_rate_is_told_without_the_batch_too(leakgauge, own, one_line):
    asked = own(lambda t: -0.1 * t)
    line = one_line(leakgauge(*asked, "--local", "kind=fedavg,lr=0.001", "--blind"))
    assert "it would fit a learning rate near" in line


# --- the commented scenario file ------------------------------------------------------------------


def uncommented() -> dict:
    """The template with its optional keys switched on."""
    return tomllib.loads(re.sub(r"^# (\w+ = )", r"\1", TEMPLATE.read_text(), flags=re.MULTILINE))


def test_every_key_is_there_and_no_other():
    given = uncommented()
    assert set(given) == {f.name for f in dataclasses.fields(Scenario)}
    for name, section in SECTIONS.items():
        assert set(given[name]) == {f.name for f in dataclasses.fields(section)}


def test_every_line_has_its_comment():
    for line in TEMPLATE.read_text().splitlines():
        assert not line or "#" in line, line


def test_what_is_written_runs_as_it_is(leakgauge, tmp_path, small_suite):
    small_suite("quick", 1, ("labels", "idlg:steps=1"), ())
    outcome = leakgauge("audit", "--init")
    assert outcome.code == 0
    assert (tmp_path / "scenario.toml").read_text() == TEMPLATE.read_text()
    outcome = leakgauge("audit", "scenario.toml", "--json", "--out", "run")
    assert outcome.code == 0, outcome.err
    assert outcome.json["scenario"]["suite"] == "quick"


def test_a_file_that_is_there_is_left_alone(leakgauge, tmp_path, one_line):
    (tmp_path / "mine.toml").write_text("seed = 3\n")
    assert "existing file" in one_line(leakgauge("audit", "--init", "mine.toml"))
    assert (tmp_path / "mine.toml").read_text() == "seed = 3\n"
