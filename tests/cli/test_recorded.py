"""`leakgauge recorded`: lists, attacks, writes, and refuses in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

from leakgauge.cli import main
from leakgauge.data import load
from leakgauge.models import load_model
from leakgauge.recording.recorder import Recorder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    data, recorder = load("digits", "test", None), Recorder(tmp_path / "recorded", keep_private=True)
    for client in range(2):
        model = load_model("mlp", data.spec, 0)
        inputs, labels = data.take(torch.tensor([client]))
        cross_entropy(model(inputs), labels).backward()
        recorder.gradient(model, samples=1, client=f"c{client}", round=1, private=(inputs, labels))
    return recorder.folder


def test_without_a_model_it_lists(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recorded", str(folder)]) == 0
    told = capsys.readouterr().out
    assert "update-00001" in told
    assert "leakgauge recorded" in told
    assert main(["recorded", str(folder), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [u["client"] for u in listed["updates"]] == ["c0", "c1"]


def test_with_model_and_data_it_attacks_and_writes(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    given = ["recorded", str(folder), "--model", "mlp", "--data", "digits", "--out", str(out)]
    assert main(given) == 0
    told = capsys.readouterr().out
    assert "psnr_mean_per_image 100" in told
    assert "a search may find" in told
    names = {path.name for path in out.iterdir()}
    assert names >= {"recorded.json", "recorded.md", "group1-linear.png", "group1-linear.safetensors"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in out.iterdir())
    assert main([*given, "--json", "--defense", "gaussian:std=0.01", "--seed", "3", "--round", "1"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["seed"] == 3
    assert {f["adaptive"] for f in result["groups"][0]["findings"]} == {False, True}


@pytest.mark.parametrize(
    ("more", "word"),
    [
        (["--model", "mlp"], "--model alone"),
        (["--data", "digits"], "--data alone"),
        (["--round", "2"], "recorded: 1"),
        (["--model", "mlp", "--data", "digits", "--attacks", "nothing"], "nothing"),
        (["--model", "mlp", "--data", "digits", "--local", "kind=fedavg"], "fedsgd"),
        (["--model", "mlp", "--data", "digits", "--batch-size", "0"], "batch-size"),
        (["--model", "lenet-dlg", "--data", "digits"], "weights"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    folder: Path, capsys: pytest.CaptureFixture[str], more: list[str], word: str
) -> None:
    assert main(["recorded", str(folder), *more]) == 2
    told = capsys.readouterr().err
    assert word in told
    assert len(told.strip().splitlines()) == 1


def test_a_folder_without_recordings_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recorded", str(tmp_path)]) == 2
    assert "Recorder" in capsys.readouterr().err


def test_what_was_left_out_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "left-out.json").write_text('{"updates": 12}')
    assert main(["recorded", str(folder)]) == 0
    assert "left out 12" in capsys.readouterr().err


def test_nothing_that_can_be_read_is_no_success(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for update in folder.glob("update-*.safetensors"):
        update.write_bytes(b"damaged")
    given = ["recorded", str(folder), "--model", "mlp", "--data", "digits", "--out", str(tmp_path / "out")]
    assert main(given) == 2
    told = capsys.readouterr()
    assert "no update could be read" in told.err
    assert "another content than update-00000.json says" in told.out
