"""`leakgauge inspect`: exit codes, stable keys, a checkpoint alone, one line for what cannot be inspected."""

from __future__ import annotations

import json

import pytest
import safetensors.torch
import torch

from leakgauge.data import load
from leakgauge.models import load_model

KEYS = {"id", "layer", "evidence", "severity", "do", "score", "threshold"}


@pytest.fixture
def checkpoints(tmp_path):
    """clean.pt and tampered.pt, where one class of the last layer speaks alone; both also as .safetensors."""
    model = load_model("lenet-dlg", load("digits").spec, 0)
    tensors = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    fished = {**tensors, "fc.weight": torch.zeros_like(tensors["fc.weight"])}
    fished["fc.weight"][3] = 0.5
    fished["fc.bias"] = torch.full((10,), 1000.0).index_fill(0, torch.tensor(3), 0)
    for name, saved in (("clean", tensors), ("tampered", fished)):
        torch.save(saved, tmp_path / f"{name}.pt")
        safetensors.torch.save_file(saved, tmp_path / f"{name}.safetensors")


@pytest.mark.usefixtures("checkpoints")
@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_a_checkpoint_alone_is_judged_by_its_weights(leakgauge, suffix):
    outcome = leakgauge("inspect", f"clean.{suffix}")
    assert outcome.code == 0, outcome.err
    assert outcome.out.startswith("no sign of tampering")
    outcome = leakgauge("inspect", f"tampered.{suffix}")
    assert outcome.code == 1, outcome.err
    assert "high: silent-classes in fc" in outcome.out
    assert "9 of 10 classes" in outcome.out
    assert "do not train on it" in outcome.out
    assert "tampered with; grave findings: 2, cautions: 1" in outcome.out


@pytest.mark.usefixtures("checkpoints")
def test_a_model_with_data_and_reference_prints_the_stable_keys_and_writes_the_same(leakgauge, tmp_path):
    shared = ("inspect", "lenet-dlg", "--data", "digits", "--reference", "clean.pt", "--device", "cpu", "--json")
    outcome = leakgauge(*shared, "--weights", "tampered.pt", "--out", "looked")
    assert outcome.code == 1, outcome.err
    result = outcome.json
    assert result["tampered"] is True
    assert all(finding.keys() == KEYS for finding in result["findings"])
    assert {"silent-classes", "huge-bias", "drift"} <= {f["id"] for f in result["findings"] if f["severity"] == "high"}
    assert {"conv1", "conv2", "conv3"} == result["scores"]["dominant-sample"].keys()
    assert json.loads((tmp_path / "looked" / "inspection.json").read_text()) == result
    outcome = leakgauge(*shared, "--weights", "clean.pt")
    assert outcome.code == 0, outcome.err
    assert outcome.json["tampered"] is False
    assert outcome.json["findings"] == []


def test_a_caution_alone_is_no_alarm(leakgauge, files_in, tmp_path):
    outcome = leakgauge("inspect", "mlp", "--data", "digits", "--samples", 4)
    assert outcome.code == 0, outcome.err
    assert "caution: linear-first in fc1" in outcome.out
    assert files_in(tmp_path) == [], "nothing is written unless asked for"


def test_without_samples_no_gradient_is_looked_at(leakgauge):
    outcome = leakgauge("inspect", "mlp", "--data", "digits", "--samples", 0, "--json")
    assert outcome.json["scores"]["dominant-sample"] == {}


@pytest.mark.usefixtures("checkpoints")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("missing.pt",), "no such file"),
        (("clean.pt", "--data", "digits"), "--weights CHECKPOINT --data DATA"),
        (("clean.pt", "--reference", "missing.safetensors"), "no such file"),
        (("lenet-dlg", "--data", "photos32", "--weights", "clean.pt"), "a checkpoint of this model"),
        (("lenet-dlk", "--data", "digits"), "did you mean 'lenet-dlg'?"),
        (("mlp", "--data", "digits", "--samples", -1), "samples"),
    ],
)
def test_what_cannot_be_inspected_is_refused_in_one_line(leakgauge, one_line, arguments, said):
    assert said in one_line(leakgauge("inspect", *arguments))


def test_a_checkpoint_with_numbers_that_are_none_is_refused(leakgauge, one_line, tmp_path):
    torch.save({"fc.weight": torch.full((3, 4), torch.nan)}, tmp_path / "broken.pt")
    assert "finite" in one_line(leakgauge("inspect", "broken.pt"))
