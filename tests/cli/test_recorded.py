"""`leakgauge audit --recorded DIR`: lists, audits every round, writes, refuses in one line; so does its old name."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
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
    assert main(["audit", "--recorded", str(folder), "--list"]) == 0
    told = capsys.readouterr().out
    assert "update-00001" in told
    assert "--all-rounds --model MODEL --data DATA" in told
    assert main(["recorded", str(folder), "--json"]) == 0
    told = capsys.readouterr()
    assert [u["client"] for u in json.loads(told.out)["updates"]] == ["c0", "c1"]
    assert f"is now 'audit --recorded {folder} --list'" in told.err


def test_with_model_and_data_it_attacks_and_writes(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    given = ["recorded", str(folder), "--model", "mlp", "--data", "digits", "--out", str(out)]
    assert main(given) == 0
    told = capsys.readouterr()
    assert "Without defense, linear recovers 2 of 2 records" in told.out
    assert "a search may find" in told.out
    assert f"is now 'audit --recorded {folder} --all-rounds'" in told.err
    assert (out / "rounds.md").stat().st_mode & 0o077 == 0
    assert "c0, c1" in (out / "rounds.md").read_text()
    names = {path.name for path in (out / "round-00001").iterdir()}
    assert names >= {"report.html", "report.json", "officer.html", "pairs.png"}


def test_every_round_is_one_json_document(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["audit", "--recorded", str(folder), "--all-rounds", "--model", "mlp", "--data", "digits", "--json"]
    words += ["--attacks", "linear", "--defenses", "clip:norm=1000", "--seed", "0", "--out", str(tmp_path / "out")]
    assert main(words) == 0
    (told,) = json.loads(capsys.readouterr().out)["rounds"]
    assert told["name"] == "round-00001"
    assert told["report"]["scenario"]["round"] == 1
    assert told["report"]["clients"] == ["c0", "c1"]
    assert told["report"]["verdict"]["leaks"]


def test_rounds_without_samples_say_what_is_proven(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["audit", "--recorded", str(folder), "--all-rounds", "--model", "mlp", "--data", "digits", "--blind"]
    assert main([*words, "--attacks", "labels linear", "--out", str(tmp_path / "out")]) == 0
    told = capsys.readouterr().out
    assert "Not scored: no samples to compare with" in told
    assert "c1" in told
    assert (tmp_path / "out" / "round-00001" / "reconstruction-linear.safetensors").is_file()


def test_a_gate_holds_for_every_round(folder: Path, tmp_path: Path) -> None:
    words = ["audit", "--recorded", str(folder), "--all-rounds", "--model", "mlp", "--data", "digits", "--json"]
    assert main([*words, "--attacks", "linear", "--gate", "ssim=0.5", "--out", str(tmp_path / "out")]) == 1


@pytest.mark.parametrize(
    ("more", "word"),
    [
        (["--all-rounds"], "--all-rounds must be used with --recorded"),
        (["--list"], "--list must be used with --recorded"),
        (["--all-rounds", "--recorded", "FOLDER", "--workers", "2"], "--workers must be left out with --all-rounds"),
        (["--all-rounds", "--recorded", "FOLDER", "--on", "ray"], "--on must be left out with --all-rounds"),
        (["--all-rounds", "--recorded", "FOLDER", "--round", "7"], "recorded: 1"),
    ],
)
def test_flags_that_do_not_go_together_are_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], more: list[str], word: str
) -> None:
    assert main(["audit", *(str(folder) if m == "FOLDER" else m for m in more)]) == 2
    told = capsys.readouterr().err
    assert word in told
    assert len(told.strip().splitlines()) == 1


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


def test_a_round_that_is_refused_does_not_keep_the_others_from_being_audited(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, recorder = load("digits", "test", None), Recorder(folder, keep_private=True)
    model = load_model("mlp", data.spec, 0)
    inputs, labels = data.take(torch.tensor([5]))
    cross_entropy(model(inputs), labels).backward()
    others = data.take(torch.tensor([9]))
    recorder.gradient(model, samples=1, client="c9", round=2, private=others)
    words = ["audit", "--recorded", str(folder), "--all-rounds", "--model", "mlp", "--data", "digits"]
    assert main([*words, "--attacks", "linear", "--out", str(tmp_path / "out")]) == 0
    told = capsys.readouterr()
    assert "round-00002 is not audited: update must be what the batch" in told.err
    assert "Not audited" in (tmp_path / "out" / "rounds.md").read_text()
    assert main([*words, "--attacks", "linear", "--round", "2", "--out", str(tmp_path / "other")]) == 2


def test_the_old_name_takes_own_arrays_for_the_kind_of_samples(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in folder.glob("update-*.json"):
        plain = {k: v for k, v in json.loads(path.read_text()).items() if k not in ("private", "digest", "sha256")}
        path.write_text(json.dumps(plain))
    np.savez(tmp_path / "kind.npz", inputs=np.random.rand(20, 1, 8, 8).astype("float32"), labels=np.arange(20) % 10)
    given = ["recorded", str(folder), "--model", "mlp", "--data", str(tmp_path / "kind.npz")]
    assert main([*given, "--out", str(tmp_path / "out")]) == 0
    assert "Not scored" in capsys.readouterr().out
