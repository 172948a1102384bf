"""`leakgauge audit --update` without the batch: proofs, labels and objectives, and nothing else."""

from __future__ import annotations

import json

import pytest
import torch

from leakgauge.client.chain import client_step
from leakgauge.data import draw_victims, load
from leakgauge.models import load_model
from leakgauge.recording.recorder import Recorder
from leakgauge.types import Client

COMMAND = ("audit", "--model", "mlp:hidden=64", "--data", "digits", "--seed", 4, "--batch-size", 2)


@pytest.fixture
def victims():
    return draw_victims(load("digits", "test"), trials=1, batch_size=2, seed=8)


@pytest.fixture
def update(victims, tmp_path, small_suite):
    small_suite("quick", 1, ("labels", "linear", "peeling", "idlg:steps=1", "ggl"), ())
    model = load_model("mlp:hidden=64", load("digits").spec, seed=4)
    tensors = client_step(Client())(model, victims, (0,)).tensors
    torch.save({n: t[0] for n, t in tensors.items()}, tmp_path / "update.pt")
    return "update.pt"


def test_what_is_proven_and_what_the_labels_are(leakgauge, update, victims, tmp_path):
    outcome = leakgauge(*COMMAND, "--update", update, "--json", "--out", "run")
    assert outcome.code == 0, outcome.err
    found = {f["attack"]: f for f in outcome.json["findings"]}
    assert list(found) == ["labels", "linear", "peeling"]
    assert found["peeling"]["certified"] == 2
    assert sorted(found["labels"]["labels"]) == sorted(victims.labels[0].tolist())
    assert all(f["scores"] == {} for f in found.values())
    verdict = outcome.json["verdict"]
    assert verdict["proven"] == {"records": 2, "of_records": 2, "labels": 2, "of_labels": 2}
    assert verdict["sentence"] == "Not scored: no samples to compare with; proven: 2 of 2 records and 2 of 2 labels."
    assert verdict["leaks"]
    assert verdict["configurations"] == []
    why = {s["attack"]: s["why"] for s in outcome.json["skipped"]}
    assert why["idlg"] == "not needed: every record carries a proof of its own"
    assert "without samples to compare with" in why["ggl"]
    assert why.keys() == {"idlg", "ggl"}
    written = json.loads((tmp_path / "run" / "report.json").read_text())
    assert {name: written[name] for name in outcome.json} == outcome.json
    assert (tmp_path / "run" / "reconstruction-peeling.safetensors").is_file()


def test_a_person_reads_it_as_a_table(leakgauge, update):
    outcome = leakgauge(*COMMAND, "--update", update, "--out", "run")
    assert "2 of 2" in outcome.out
    assert "idlg: not needed: every record carries a proof of its own" in outcome.out
    assert "Not scored: no samples to compare with; proven: 2 of 2 records and 2 of 2 labels." in outcome.out
    assert "flag no-ground-truth" in outcome.out


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--gate", "ssim=0.5"), "gate must be used where the batch"),
        (("--ledger",), "ledger must be used where the batch"),
        (("--local", "kind=fedavg,lr=0.1"), "update must be what --local"),
        (("--training", "rounds=2"), "with a saved update"),
    ],
    ids=["gate", "ledger", "a gradient taken for a difference", "training"],
)
def test_what_cannot_be_is_refused_and_writes_nothing(leakgauge, update, tmp_path, one_line, more, said):
    assert said in one_line(leakgauge(*COMMAND, "--update", update, *more, "--out", "run"))
    assert not (tmp_path / "run").exists()


def test_recorded_clients_are_audited_by_name(leakgauge, victims, tmp_path, small_suite):
    small_suite("quick", 1, ("labels", "peeling"), ())
    model = load_model("mlp:hidden=64", load("digits").spec, seed=4)
    recorder = Recorder(tmp_path / "recorded")
    for client in ("Ann", "Bob"):
        torch.nn.functional.cross_entropy(model(victims.inputs[0]), victims.labels[0]).backward()
        recorder.gradient(model, samples=2, client=client, round=5)
        model.zero_grad()
    outcome = leakgauge(
        "audit", "--recorded", "recorded", "--model", "mlp:hidden=64", "--data", "digits", "--out", "run"
    )
    assert outcome.code == 0, outcome.err
    assert "Ann" in outcome.out
    document = json.loads((tmp_path / "run" / "report.json").read_text())
    assert document["clients"] == ["Ann", "Bob"]
    assert document["scenario"]["round"] == 5
    assert {f["certified"] for f in document["findings"] if f["attack"] == "peeling"} == {2}
    page = tmp_path / "run" / "report.html"
    assert page.stat().st_mode & 0o077 == 0
    assert "4 of 4 private records were recovered" in page.read_text()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--recorded", "nowhere"), "--recorded must be a folder that a recorder wrote"),
        (("--recorded", ".", "--update", "u.pt"), "--update and --recorded must be one of them"),
        (("--recorded", "."), "no update-*.json in it"),
        (("--round", 1), "--round must be used with --recorded"),
    ],
)
def test_bad_folders_are_one_line(leakgauge, one_line, flags, said):
    assert said in one_line(leakgauge("audit", "--model", "mlp", "--data", "digits", *flags))
