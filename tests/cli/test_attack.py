"""`leakgauge attack`: the JSON others rely on, fields as flags, the user's own model and data."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from leakgauge import catalog
from leakgauge.client.chain import client_step
from leakgauge.data import draw_victims, load
from leakgauge.models import load_model
from leakgauge.types import Client

FINDING = {
    "attack",
    "defense",
    "adaptive",
    "trial",
    "seed",
    "scores",
    "objective",
    "steps",
    "evaluations",
    "seconds",
    "flags",
    "error",
}
SUMMARY = {
    "attack",
    "defense",
    "adaptive",
    "trials",
    "failed",
    "psnr_mean_per_image",
    "ssim_mean_per_image",
    "success_rate",
    "worst",
    "floor",
}
OWN = """
import numpy as np
from torch import nn

def net(num_classes, hidden=8):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.Sigmoid(), nn.Linear(hidden, num_classes))

def frozen(num_classes):
    model = net(num_classes)
    model[3].requires_grad_(False)
    return model

def branching(num_classes):
    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(64, num_classes)

        def forward(self, x):
            x = x.flatten(1)
            return self.fc(x + 1 if x.sum() > 0 else x)

    return Branching()

def blobs():
    rng = np.random.default_rng(0)
    return rng.random((40, 8, 8), dtype=np.float32), np.arange(40) % 4
"""


@pytest.fixture
def own(tmp_path: Path) -> str:
    (tmp_path / "own.py").write_text(OWN)
    return "own.py"


def test_json_is_one_document_with_the_stable_keys(leakgauge, small, tmp_path):
    outcome = leakgauge("attack", "dlg", *small, "--steps", 1, "--restarts", 1, "--seed", 7, "--json", "--out", "run")
    assert outcome.code == 0
    report = outcome.json
    assert report.keys() >= {"schema", "scenario", "findings", "summary", "verdict", "environment"}
    assert report["schema"] == 2
    assert report["scenario"]["model"] == "mlp:hidden=16"
    assert report["environment"].keys() >= {"leakgauge", "torch", "device", "commit"}
    assert all(report["environment"].values())
    for trial, finding in enumerate(report["findings"]):
        assert finding.keys() >= FINDING
        assert (finding["attack"], finding["defense"], finding["adaptive"]) == ("dlg", "none", False)
        assert (finding["trial"], finding["seed"], finding["error"]) == (trial, 7 + trial, None)
        assert finding["scores"].keys() >= {"mse", "psnr", "ssim", "label_accuracy"}
    assert len(report["findings"]) == 2
    (row,) = report["summary"]
    assert row.keys() >= SUMMARY
    assert (row["trials"], row["failed"]) == (2, 0)
    for name in ("psnr_mean_per_image", "ssim_mean_per_image"):
        assert row[name].keys() >= {"value", "low", "high"}
        assert row[name]["low"] <= row[name]["value"] <= row[name]["high"]
    assert row["success_rate"].keys() >= {"value", "low", "high", "criterion"}
    assert row["success_rate"]["criterion"] == "ssim>=0.6"
    assert row["worst"].keys() >= {"trial", "psnr", "ssim"}
    assert row["floor"].keys() == {"random-guess", "mean-image"}
    assert row["floor"]["mean-image"]["psnr_mean_per_image"]["value"] > 0
    assert "dlg" in outcome.err, "progress is told on stderr"


def test_json_on_stdout_agrees_with_the_report_on_disk(leakgauge, small, tmp_path):
    printed = leakgauge("attack", "linear", *small, "--json", "--out", "run").json
    written = json.loads((tmp_path / "run" / "report.json").read_text())
    assert [f for f in written["findings"] if f["attack"] == "linear"] == printed["findings"]
    assert {f["attack"] for f in written["findings"]} == {"linear", "mean-image", "random-guess"}


def test_a_table_is_scored_without_pictures(leakgauge, tmp_path):
    outcome = leakgauge(
        "attack", "linear", "--model", "mlp", "--data", "breast-cancer", "--trials", 2, "--json", "--out", "run"
    )
    (row,) = outcome.json["summary"]
    assert row["success_rate"]["criterion"] == "mse<=0.001"
    assert row["success_rate"]["value"] == 1
    assert "ssim_mean_per_image" not in row
    assert not (tmp_path / "run" / "pairs.png").exists()


def test_person_reads_verdict_path_and_pictures(leakgauge, small, tmp_path):
    outcome = leakgauge("attack", "linear", *small, "--out", "run")
    assert outcome.code == 0
    assert "Verdict: LEAKS." in outcome.out
    assert "Report: run/report.html" in outcome.out
    assert (tmp_path / "run" / "pairs.png").read_bytes().startswith(b"\x89PNG")


def test_same_command_gives_the_same_findings(leakgauge, small):
    first, second = (
        leakgauge("attack", "linear", *small, "--defense", "gaussian:std=0.1", "--json", "--out", f"run{i}").json
        for i in range(2)
    )
    for report in (first, second):
        for entry in (*report["findings"], *report["summary"]):
            entry.pop("seconds")
    assert first["findings"] == second["findings"]
    assert first["summary"] == second["summary"]


def test_default_folder_is_named_by_the_scenario(leakgauge, small, tmp_path):
    for seed in (0, 0, 1):
        leakgauge("attack", "linear", *small, "--seed", seed, "--json")
    assert len(list((tmp_path / "leakgauge-runs").iterdir())) == 2


@pytest.mark.parametrize(
    ("choice", "variants"), [((), [False, True]), (("--plain",), [False]), (("--adaptive",), [True])]
)
def test_attacker_knows_the_defense_or_not_as_asked(leakgauge, small, choice, variants):
    outcome = leakgauge("attack", "linear", *small, "--defense", "prune:share=0.5", *choice, "--json", "--out", "run")
    assert [row["adaptive"] for row in outcome.json["summary"]] == variants
    assert {row["defense"] for row in outcome.json["summary"]} == {"prune:share=0.5"}


def test_defenses_chain_in_the_order_given(leakgauge, small):
    outcome = leakgauge(
        "attack",
        "linear",
        *small,
        "--defense",
        "prune:share=0.5",
        "--defense",
        "gaussian",
        "--plain",
        "--json",
        "--out",
        "run",
    )
    assert outcome.json["scenario"]["defenses"] == ["prune:share=0.5+gaussian"]


def test_defense_without_effect_is_flagged(leakgauge, small):
    outcome = leakgauge("attack", "linear", *small, "--defense", "gaussian:std=0", "--json", "--out", "run")
    assert "defense-without-effect" in outcome.json["findings"][0]["flags"]


def test_oracle_is_flagged(leakgauge, small):
    outcome = leakgauge(
        "attack",
        "idlg",
        *small,
        "--steps",
        1,
        "--restarts",
        1,
        "--threat-model",
        "honest-but-curious+labels",
        "--json",
        "--out",
        "run",
    )
    assert all("labels-given" in f["flags"] for f in outcome.json["findings"])
    assert "labels" in outcome.json["facts"]


@pytest.mark.parametrize("name", catalog.find("attacks"))
def test_help_shows_every_field_as_a_flag_and_an_example(leakgauge, name):
    outcome = leakgauge("attack", name, "--help")
    assert outcome.code == 0
    assert "Example" in outcome.out
    assert f"leakgauge attack {name}" in outcome.out
    for field in catalog.get("attacks", name)().as_dict():
        assert f"--{field.replace('_', '-')}" in outcome.out
    for common in ("--json", "--seed", "--device", "--out", "--trials"):
        assert common in outcome.out


def test_fields_arrive_from_their_flags(leakgauge, small):
    outcome = leakgauge("attack", "dlg", *small, "--steps", "1", "--restarts", "2", "--json", "--out", "run")
    assert outcome.json["findings"][0]["spec"] == "dlg:steps=1,restarts=2"


def test_own_model_from_a_file(leakgauge, own):
    outcome = leakgauge(
        "attack",
        "linear",
        "--model",
        f"{own}:net:hidden=4",
        "--data",
        "digits",
        "--trials",
        2,
        "--json",
        "--out",
        "run",
    )
    assert outcome.code == 0
    assert outcome.json["summary"][0]["success_rate"]["value"] == 1


def test_own_model_from_a_module_in_the_working_folder(leakgauge, tmp_path):
    (tmp_path / "ownpackage").mkdir()
    (tmp_path / "ownpackage" / "nets.py").write_text(OWN)
    outcome = leakgauge(
        "attack",
        "linear",
        "--model",
        "ownpackage.nets:net",
        "--data",
        "digits",
        "--trials",
        1,
        "--json",
        "--out",
        "run",
    )
    assert outcome.code == 0, outcome.err


def test_own_model_that_was_edited_is_run_anew(leakgauge, own, tmp_path):
    command = (
        "attack",
        "linear",
        "--defense",
        "gaussian:std=1",
        "--model",
        f"{own}:net",
        "--data",
        "digits",
        "--trials",
        1,
        "--json",
        "--out",
        "run",
    )
    first = leakgauge(*command).json
    (tmp_path / own).write_text(OWN.replace("nn.Sigmoid()", "nn.Tanh()"))
    second = leakgauge(*command).json
    assert first["findings"][0]["objective"] != second["findings"][0]["objective"]


def test_frozen_parameters_of_an_own_model_are_not_shared(leakgauge, own):
    outcome = leakgauge(
        "attack",
        "dlg",
        "--steps",
        1,
        "--restarts",
        1,
        "--model",
        f"{own}:frozen",
        "--data",
        "digits",
        "--trials",
        1,
        "--json",
        "--out",
        "run",
    )
    assert outcome.code == 0, outcome.err


def test_own_model_that_cannot_run_side_by_side_runs_one_after_another_and_says_so(leakgauge, own):
    """A forward pass that branches on its data cannot run under vmap."""
    outcome = leakgauge(
        "attack",
        "dlg",
        "--steps",
        1,
        "--model",
        f"{own}:branching",
        "--data",
        "digits",
        "--trials",
        1,
        "--out",
        "run",
        "--json",
    )
    assert outcome.code == 0
    assert outcome.json["environment"]["engine"].startswith("one after another, because ")


def test_own_data_from_a_factory(leakgauge, own):
    outcome = leakgauge(
        "attack", "linear", "--model", "mlp", "--data", f"{own}:blobs", "--trials", 2, "--json", "--out", "run"
    )
    assert outcome.json["data"] | {"mean": 0, "std": 0} == {
        "name": "blobs",
        "shape": [1, 8, 8],
        "classes": 4,
        "kind": "image",
        "mean": 0,
        "std": 0,
        "parts": [],
        "target": "class",
        "target_shape": [],
    }
    assert outcome.json["summary"][0]["success_rate"]["value"] == 1


def test_own_data_from_npz(leakgauge, tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "mine.npz", x=rng.random((12, 6), dtype=np.float32), y=np.arange(12) % 3)
    outcome = leakgauge(
        "attack", "linear", "--model", "mlp", "--data", "mine.npz", "--trials", 2, "--json", "--out", "run"
    )
    assert outcome.json["data"]["kind"] == "tabular"
    assert outcome.json["summary"][0]["success_rate"]["value"] == 1


def test_local_training_is_read_from_its_flag(leakgauge, small):
    outcome = leakgauge("attack", "linear", *small, "--local", "kind=fedavg,lr=0.1", "--json", "--out", "run")
    assert outcome.json["scenario"]["local"]["kind"] == "fedavg"
    assert outcome.json["summary"][0]["success_rate"]["value"] == 1


def test_a_trained_model_is_attacked_where_training_is_asked_for(leakgauge, small):
    outcome = leakgauge(
        "attack", "linear", *small, "--training", "rounds=3,optimizer=sgd,lr=0.1", "--json", "--out", "run"
    )
    assert outcome.code == 0, outcome.err
    assert outcome.json["scenario"]["training"]["rounds"] == 3
    assert outcome.json["summary"][0]["success_rate"]["value"] == 1


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--training", "rounds=-1", "training: rounds must be at least 0"),
        ("--training", "20", "written field=value"),
        ("--training", "rounds=1,clients=9999", "lower either"),
        ("--precision", "float46", "precision must be one of float32, tf32, float64"),
    ],
)
def test_wrong_training_or_precision_is_one_line(leakgauge, small, flag, value, message):
    outcome = leakgauge("attack", "linear", *small, flag, value, "--out", "run")
    assert outcome.code == 2
    assert message in outcome.err.splitlines()[-1]


def test_a_saved_update_is_attacked_in_float64_but_never_with_a_model_trained_anew(leakgauge, small, tmp_path):
    model = load_model("mlp:hidden=16", load("digits").spec, seed=0)
    victims = draw_victims(load("digits", "test"), trials=1, batch_size=1, seed=8)
    save_file(dict(client_step(Client())(model, victims, (0,)).tensors), tmp_path / "update.safetensors")
    command = ("attack", "linear", *small[:4], "--update", "update.safetensors", "--json", "--out", "run")
    outcome = leakgauge(*command, "--precision", "float64")
    assert outcome.code == 0, outcome.err
    assert outcome.json["environment"]["model state"] == "untrained"
    found = load_file(tmp_path / "run" / "reconstruction.safetensors")["inputs"]
    assert found.dtype == torch.float64
    torch.testing.assert_close(found.float(), victims.inputs, atol=1e-4, rtol=0)
    refused = leakgauge(*command, "--training", "rounds=2")
    assert refused.code == 2
    assert "--weights" in refused.err


def test_more_metrics_are_scored_when_asked_for(leakgauge, small):
    outcome = leakgauge("attack", "linear", *small, "--metrics", "mae", "--json", "--out", "run")
    assert outcome.json["findings"][0]["scores"].keys() >= {"mse", "psnr", "ssim", "mae"}
    assert "mae_mean_per_image" in outcome.json["summary"][0]


def test_partition_is_read_from_its_flag(leakgauge, small):
    outcome = leakgauge(
        "attack", "linear", *small, "--batch-size", 4, "--partition", "kind=classes,classes=1", "--json", "--out", "run"
    )
    assert (
        outcome.json["scenario"]["partition"] | {"kind": "classes", "classes": 1}
        == (outcome.json["scenario"]["partition"])
    )


def test_attack_that_does_not_fit_the_model_is_refused_without_a_report(leakgauge, tmp_path):
    outcome = leakgauge(
        "attack", "linear", "--model", "lenet-dlg", "--data", "digits", "--trials", 1, "--json", "--out", "run"
    )
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.splitlines()[-1].startswith("leakgauge: not applicable: linear needs")
    assert not (tmp_path / "run" / "report.json").exists()


def test_asking_for_an_adaptive_attack_that_does_not_exist_is_not_a_clean_bill(leakgauge, small):
    """Nothing was attacked, so the exit code must not say that all is well."""
    outcome = leakgauge("attack", "linear", *small, "--defense", "gaussian:std=0", "--adaptive", "--out", "run")
    assert outcome.code == 2


def test_missing_git_does_not_stop_the_report(leakgauge, small, monkeypatch, tmp_path):
    """A machine with python3 and make need not have git."""
    monkeypatch.setenv("PATH", str(tmp_path))
    outcome = leakgauge("attack", "linear", *small, "--json", "--out", "run")
    assert outcome.code == 0
    assert outcome.json["environment"]["commit"]


def test_labels_alone_are_told_as_labels_and_not_as_recovered_records(leakgauge, tmp_path):
    command = ("attack", "labels", "--model", "lenet-dlg:init=default", "--data", "digits", "--batch-size", 8)
    outcome = leakgauge(*command, "--trials", 2, "--out", "run")
    assert outcome.code == 0
    assert "labels reads the labels of 16 of 16 records (guessing:" in outcome.out
    assert "LEAKS" not in outcome.out
    assert not (tmp_path / "run" / "pairs.png").exists()
    assert "of the labels read, no records claimed" in (tmp_path / "run" / "report.html").read_text()
    assert "**No record recovered, but labels read.**" in (tmp_path / "run" / "report.md").read_text()
    (row,) = leakgauge(*command, "--trials", 2, "--json", "--out", "again").json["summary"]
    assert row["success_rate"]["records"] == 0
    assert row["label_accuracy_mean_per_trial"]["value"] == 1
