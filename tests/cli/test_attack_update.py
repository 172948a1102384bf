"""`leakgauge attack NAME --update FILE`: an update that the user saved gives its sample away."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from leakgauge.client.chain import client_step
from leakgauge.data import draw_victims, load
from leakgauge.models import load_model
from leakgauge.types import Client

COMMAND = ("attack", "linear", "--model", "mlp:hidden=16", "--data", "digits", "--seed", 4)


@pytest.fixture
def victims():
    """(2, 1, 1, 8, 8)"""
    return draw_victims(load("digits", "test"), trials=2, batch_size=1, seed=8)


@pytest.fixture
def shared(victims):
    """What two clients shared, by parameter name: (2, *parameter)."""

    def step(local=None):
        model = load_model("mlp:hidden=16", load("digits").spec, seed=4)
        return dict(client_step(local or Client())(model, victims, (0, 1)).tensors)

    return step


def write_as(path, tensors):
    if path.suffix == ".safetensors":
        save_file({n: t.contiguous() for n, t in tensors.items()}, path)
    elif path.suffix == ".npz":
        np.savez(path, **{n: t.numpy() for n, t in tensors.items()})
    else:
        torch.save(tensors, path)


@pytest.mark.parametrize("suffix", [".safetensors", ".npz", ".pt"])
def test_one_clients_update_is_inverted(leakgauge, shared, victims, tmp_path, suffix):
    write_as(tmp_path / f"update{suffix}", {n: t[0] for n, t in shared().items()})
    outcome = leakgauge(*COMMAND, "--update", f"update{suffix}", "--json", "--out", "run")
    assert outcome.code == 0
    (finding,) = outcome.json["findings"]
    assert finding["labels"] == victims.labels[0].tolist()
    assert finding["scores"] == {}
    assert "no-ground-truth" in finding["flags"]
    found = load_file(tmp_path / "run" / "reconstruction.safetensors")["inputs"]
    torch.testing.assert_close(found, victims.inputs[:1], atol=1e-4, rtol=0)
    assert (tmp_path / "run" / "reconstruction.png").read_bytes().startswith(b"\x89PNG")


def test_many_clients_and_their_seeds(leakgauge, shared, victims, tmp_path):
    write_as(tmp_path / "update.safetensors", shared())
    report = leakgauge(*COMMAND, "--update", "update.safetensors", "--json", "--out", "run").json
    assert report.keys() >= {"schema", "scenario", "findings", "summary", "verdict", "environment"}
    assert [(f["trial"], f["seed"]) for f in report["findings"]] == [(0, 4), (1, 5)]
    assert [f["labels"] for f in report["findings"]] == victims.labels.tolist()


def test_weight_difference_of_local_training(leakgauge, shared, victims, tmp_path):
    write_as(tmp_path / "update.safetensors", shared(Client(kind="fedavg", lr=0.5)))
    outcome = leakgauge(
        *COMMAND, "--local", "kind=fedavg,lr=0.5", "--update", "update.safetensors", "--json", "--out", "run"
    )
    assert outcome.code == 0
    found = load_file(tmp_path / "run" / "reconstruction.safetensors")["inputs"]
    torch.testing.assert_close(found, victims.inputs, atol=1e-3, rtol=0)


def test_person_reads_labels_flags_and_the_path(leakgauge, shared, tmp_path):
    write_as(tmp_path / "update.safetensors", shared())
    outcome = leakgauge(*COMMAND, "--update", "update.safetensors", "--out", "run")
    assert "proven right" in outcome.out
    assert "Not scored" in outcome.out.replace("NOT SCORED", "Not scored")
    assert "flag no-ground-truth" in outcome.out
    assert "Reconstructions: run" in outcome.out
    assert (tmp_path / "run" / "reconstruction.safetensors").stat().st_mode & 0o077 == 0


def test_nobody_claims_that_labels_were_given_when_there_are_none_to_give(leakgauge, shared, tmp_path):
    """A saved update comes without its labels, so '+labels' is refused."""
    write_as(tmp_path / "update.safetensors", shared())
    outcome = leakgauge(
        *COMMAND,
        "--threat-model",
        "honest-but-curious+labels",
        "--update",
        "update.safetensors",
        "--json",
        "--out",
        "run",
    )
    assert outcome.code == 2
    assert "+labels" in outcome.err
    assert not (tmp_path / "run").exists()


def test_attack_that_does_not_fit_writes_nothing(leakgauge, tmp_path):
    model = load_model("lenet-dlg", load("digits").spec, seed=0)
    write_as(tmp_path / "update.safetensors", {n: p.detach() for n, p in model.named_parameters()})
    outcome = leakgauge(
        "attack", "linear", "--model", "lenet-dlg", "--data", "digits", "--update", "update.safetensors", "--out", "run"
    )
    assert outcome.code == 2
    assert outcome.err.splitlines()[-1].startswith("leakgauge: linear needs")
    assert not (tmp_path / "run").exists()
