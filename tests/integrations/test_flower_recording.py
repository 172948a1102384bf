"""What a Flower server sees is recorded, whatever its strategy does, and the federation does not notice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from leakgauge.cli import main
from leakgauge.integrations.flower_recording import RecordingGrid, recorded_app
from leakgauge.recording.recorded_folder import read_folder, tensors_of
from leakgauge.recording.recorder import Recorder

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    flwr = pytest.importorskip("flwr.app", reason="the package flwr is not installed")

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower"


@pytest.fixture(autouse=True)
def in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages are made inside a run; Flower keeps its number in a class."""
    from flwr.supercore.task_identity import TaskIdentity

    for part in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, part, 1)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))


class Federation:
    """A Grid whose clients add one to every weight; it drops a message's content once it is sent, as some do."""

    def __init__(self, errors: Iterable[int] = ()) -> None:
        self.errors, self.waiting = set(errors), {}

    def get_node_ids(self) -> list[int]:
        return [1, 2]

    def push_messages(self, messages: Iterable[Any]) -> list[str]:
        for message in messages:
            name = f"m{len(self.waiting)}"
            message.metadata.__dict__["_message_id"] = name
            self.waiting[name] = self.answer(message)
            message.content.clear()
        return list(self.waiting)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Any]:
        return [self.waiting.pop(name) for name in message_ids]

    def send_and_receive(self, messages: Iterable[Any], *, timeout: float | None = None) -> list[Any]:
        return self.pull_messages(self.push_messages(messages))

    def answer(self, message: Any) -> Any:
        if message.metadata.dst_node_id in self.errors:
            return flwr.Message(flwr.Error(code=0, reason="broken"), reply_to=message)
        arrays = message.content["arrays"]
        moved = flwr.ArrayRecord({n: flwr.Array(np.asarray(a.numpy() + 1)) for n, a in arrays.items()})
        metrics = flwr.MetricRecord({"num-examples": 4})
        return flwr.Message(flwr.RecordDict({"arrays": moved, "metrics": metrics}), reply_to=message)


def messages(kind: str = "train", bare: bool = False, **config: Any) -> list[Any]:
    state = network().state_dict()
    arrays = flwr.ArrayRecord([t.numpy() for t in state.values()]) if bare else flwr.ArrayRecord(state)
    told = flwr.ConfigRecord({"server-round": 3, **config})
    return [
        flwr.Message(flwr.RecordDict({"arrays": arrays, "config": told}), dst_node_id=node, message_type=kind)
        for node in (1, 2)
    ]


def test_every_client_and_round_is_written_with_what_the_server_knows(tmp_path: Path) -> None:
    grid = RecordingGrid(Federation(), Recorder(tmp_path), epochs=2)
    replies = list(grid.send_and_receive(messages(lr=0.25)))
    assert len(replies) == 2
    entries = read_folder(tmp_path)
    origins = [entry.origin for entry in entries]
    assert [(o.round, o.samples, o.lr, o.epochs) for o in origins] == [(3, 4, 0.25, 2)] * 2
    assert {o.client for o in origins} == {str(reply.metadata.src_node_id) for reply in replies}
    update = tensors_of(entries[0], network())
    assert all(torch.allclose(t, torch.ones_like(t)) for t in update.tensors.values())
    assert torch.equal(update.buffers["1.running_mean"], torch.ones(1, 3))
    assert len(list(tmp_path.glob("weights-*"))) == 1


def test_pushing_and_pulling_apart_is_recorded_too(tmp_path: Path) -> None:
    grid = RecordingGrid(Federation(), Recorder(tmp_path))
    ids = list(grid.push_messages(messages()))
    assert not list(tmp_path.iterdir())
    grid.pull_messages(ids)
    assert len(read_folder(tmp_path)) == 2
    assert read_folder(tmp_path)[0].origin.lr is None


def test_only_training_and_only_whole_answers_are_recorded(tmp_path: Path) -> None:
    grid = RecordingGrid(Federation(errors=[2]), Recorder(tmp_path))
    grid.send_and_receive(messages("evaluate"))
    assert not list(tmp_path.iterdir())
    assert len(list(grid.send_and_receive(messages()))) == 2
    assert len(read_folder(tmp_path)) == 1
    assert grid.get_node_ids() == [1, 2]


def test_bare_arrays_get_the_names_that_were_told(tmp_path: Path) -> None:
    grid = RecordingGrid(Federation(), Recorder(tmp_path), names=list(network().state_dict()))
    grid.send_and_receive(messages(bare=True))
    assert '"0.weight"' in (tmp_path / "update-00000.json").read_text()


def test_what_cannot_be_read_is_counted_and_the_federation_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grid = RecordingGrid(Federation(), Recorder(tmp_path), names=["too", "few"])
    assert len(list(grid.send_and_receive(messages()))) == 2
    assert grid.unreadable == 2
    assert "one for each" in caplog.text


def test_an_app_is_wrapped_without_a_change(tmp_path: Path) -> None:
    seen: list[Any] = []

    def theirs(grid: Any, context: Any) -> None:
        seen.append((type(grid), context))
        grid.send_and_receive(messages())

    recorded_app(theirs, tmp_path)(Federation(), "context")
    assert seen == [(RecordingGrid, "context")]
    assert len(read_folder(tmp_path)) == 2


def test_a_simulated_app_of_ten_clients_gives_its_pictures_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray", reason="the package ray is not installed")
    recorded, out = tmp_path / "recorded", tmp_path / "out"
    told = os.environ | {"FLWR_HOME": str(tmp_path / "flower"), "OMP_NUM_THREADS": "1"}
    simulated = subprocess.run(
        [sys.executable, str(EXAMPLE / "simulate.py"), str(recorded)],
        env=told,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert simulated.returncode == 0, simulated.stderr[-2000:]
    assert len(read_folder(recorded)) == 20
    model = f"{EXAMPLE / 'digits_app' / 'task.py'}:Net"
    data = f"{EXAMPLE / 'clients.py'}:pictures"
    for number in (1, 2):
        asked = ["--recorded", str(recorded), "--round", str(number), "--model", model, "--data", data]
        capsys.readouterr()
        assert main(["audit", *asked, "--attacks", "linear", "--out", str(out), "--json"]) == 0
        verdict = json.loads(capsys.readouterr().out)["verdict"]
        assert "linear recovers 10 of 10 records" in verdict["sentence"]
    assert (out / "report.html").is_file()
