"""A folder of recorded updates is read without trusting it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from leakgauge.errors import BadInput
from leakgauge.recording.recorded_folder import (
    LEFT_OUT,
    Origin,
    left_out,
    private_of,
    read_folder,
    side_by_side,
    tensors_of,
    weights_of,
)
from leakgauge.recording.recorder import Recorder
from leakgauge.types import Client


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))


def record(folder: Path, clients: int = 2, **origin: Any) -> nn.Module:
    net, recorder = model(), Recorder(folder, keep_private=True)
    tensors = {n: torch.ones_like(p) for n, p in net.named_parameters()}
    buffers = {"1.running_mean": torch.zeros(3)}
    told = {"samples": 1, "lr": 0.1} | origin
    for client in range(clients):
        private = (torch.full((1, 2), float(client)), torch.tensor([client]))
        recorder.add(
            "weight_delta",
            tensors,
            Origin(client=str(client), **told),
            buffers=buffers,
            weights=net.state_dict(),
            private=private,
        )
    return net


def test_what_was_recorded_comes_back(tmp_path: Path) -> None:
    net = record(tmp_path, epochs=2, batch_size=1)
    entries = read_folder(tmp_path)
    assert [entry.origin.client for entry in entries] == ["0", "1"]
    assert entries[0].local() == Client(kind="fedavg", lr=0.1, epochs=2, batch_size=1)
    update = tensors_of(entries[0], net)
    assert update.trials == 1
    assert update.tensors.keys() == dict(net.named_parameters()).keys()
    assert update.buffers.keys() == {"1.running_mean"}
    truth = private_of(entries)
    assert truth is not None
    assert truth.inputs.shape == (2, 1, 2)
    assert truth.labels.tolist() == [[0], [1]]
    assert left_out(tmp_path) == 0


def test_clients_with_the_same_weights_and_training_are_attacked_together(tmp_path: Path) -> None:
    record(tmp_path)
    record(tmp_path, clients=1, lr=0.2)
    assert [len(group) for group in side_by_side(read_folder(tmp_path))] == [2, 1]


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no update-\*\.json"):
        read_folder(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 9},
        {"kind": "picture"},
        {"update": "../elsewhere.safetensors"},
        {"update": "/etc/passwd"},
        {"update": "update-00000.pt"},
        {"update": None},
        {"weights": 3},
        {"lr": "fast"},
        {"client": ["a"]},
        {"samples": -1},
    ],
)
def test_a_description_that_no_recorder_wrote_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    record(tmp_path, clients=1)
    path = tmp_path / "update-00000.json"
    told = json.loads(path.read_text())
    for digest in ("digest", "sha256"):
        told.pop(digest)
    path.write_text(json.dumps(told))
    assert len(read_folder(tmp_path)) == 1, "who mends a description by hand takes its digest out"
    path.write_text(json.dumps(told | change))
    with pytest.raises(BadInput):
        read_folder(tmp_path)


def test_a_changed_description_and_files_in_each_others_place_are_named(tmp_path: Path) -> None:
    net = record(tmp_path)
    first, second = read_folder(tmp_path)
    assert weights_of(first) == first.weights
    for path in (first.update, first.private, first.weights):
        content = path.read_bytes()
        path.write_bytes(second.private.read_bytes() if path == first.private else content + b" ")
        with pytest.raises(BadInput, match="another content") as refused:
            tensors_of(first, net), private_of([first]), weights_of(first)
        assert path.name in str(refused.value)
        path.write_bytes(content)
    described = tmp_path / "update-00000.json"
    described.write_text(described.read_text().replace('"client": "0"', '"client": "1"'))
    with pytest.raises(BadInput, match="digest"):
        read_folder(tmp_path)


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff\xfe", b"{"])
def test_a_broken_description_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "update-00000.json").write_bytes(content)
    with pytest.raises(BadInput, match=r"update-00000\.json"):
        read_folder(tmp_path)


def test_broken_or_missing_tensors_are_named(tmp_path: Path) -> None:
    net = record(tmp_path, clients=1)
    (entry,) = read_folder(tmp_path)
    entry.update.write_bytes(b"nothing")
    with pytest.raises(BadInput, match=r"update-00000\.safetensors"):
        tensors_of(entry, net)
    entry.update.unlink()
    with pytest.raises(BadInput, match=r"update-00000\.safetensors"):
        tensors_of(entry, net)


def test_an_update_of_zeros_or_nan_is_refused(tmp_path: Path) -> None:
    net, recorder = model(), Recorder(tmp_path)
    for value in (0.0, float("nan")):
        recorder.add("gradient", {n: torch.full_like(p, value) for n, p in net.named_parameters()}, Origin())
    zeros, broken = read_folder(tmp_path)
    with pytest.raises(BadInput, match="zeros only"):
        tensors_of(zeros, net)
    with pytest.raises(BadInput, match="NaN"):
        tensors_of(broken, net)


def test_frozen_parameters_may_travel_along(tmp_path: Path) -> None:
    net = record(tmp_path, clients=1)
    net.get_parameter("0.bias").requires_grad_(False)
    (entry,) = read_folder(tmp_path)
    assert "0.bias" not in tensors_of(entry, net).tensors


def test_a_rate_that_was_never_told_is_asked_for(tmp_path: Path) -> None:
    record(tmp_path, clients=1, lr=None)
    with pytest.raises(BadInput, match="--local kind=fedavg"):
        read_folder(tmp_path)[0].local()


def test_private_samples_that_are_not_there_for_all_are_no_truth(tmp_path: Path) -> None:
    net = record(tmp_path, clients=1)
    Recorder(tmp_path).add("gradient", {n: torch.ones_like(p) for n, p in net.named_parameters()}, Origin())
    assert private_of(read_folder(tmp_path)) is None


def test_a_broken_count_of_what_was_left_out_is_named(tmp_path: Path) -> None:
    (tmp_path / LEFT_OUT).write_text("{}")
    with pytest.raises(BadInput, match=LEFT_OUT):
        left_out(tmp_path)
