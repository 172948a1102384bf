"""Private samples reach the disk only where that was asked for, for their owner only, and never a message or a log."""

import logging
import stat
import struct
import warnings

import numpy as np
import pytest
import torch

with warnings.catch_warnings():  # typer 0.20 imports names that click 8.5 deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    from leakgauge.cli import main

from leakgauge.data.loading import load, load_whole
from leakgauge.errors import LeakgaugeError
from leakgauge.types import Scenario

SECRET = 0.61803397  # in every private sample; no score, share or date looks like it
DIGITS = ("0.61803", "0.618034", "61803")
SHOWING = {"report.html", "pairs.png", "attacks.png"}  # what the command is for: they show samples, to their owner


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """A command in a folder of its own with private pictures in `private.npz`; gives all that it said."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    inputs = rng.uniform(0.1, 0.9, (8, 1, 8, 8)).astype(np.float32)
    inputs[[0, 1, 4, 5], :, 2:4] = SECRET  # of each class every second is private, from the first on
    np.savez(tmp_path / "private.npz", inputs=inputs, labels=np.arange(8) % 2)

    def command(*words, code=0):
        capfd.readouterr()
        assert main([*map(str, words)]) == code
        told = capfd.readouterr()
        return told.out + told.err

    return command


def attack(*more):
    return (
        "attack",
        "dlg",
        "--steps",
        "2",
        "--restarts",
        "1",
        "--model",
        "mlp:hidden=8",
        "--data",
        "private.npz",
        "--trials",
        "2",
        "--batch-size",
        "2",
        "--device",
        "cpu",
        "--out",
        "run",
        *more,
    )


def holding(folder):
    """The files that hold a row of a private picture as numbers."""
    row = struct.pack("<8f", *[SECRET] * 8)
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file() and row in p.read_bytes()}


def test_no_private_tensor_is_written_unless_asked(run, tmp_path):
    run(*attack())
    assert holding(tmp_path / "run") == set()
    run(*attack("--keep-private"))
    assert holding(tmp_path / "run") == {"truth.safetensors"}
    assert stat.S_IMODE((tmp_path / "run/truth.safetensors").stat().st_mode) == 0o600
    run(*attack())
    assert not (tmp_path / "run/truth.safetensors").exists(), "what the last command asked for counts"


def test_an_audit_keeps_them_on_the_same_terms(run, tmp_path):
    words = ("audit", "--model", "mlp:hidden=8", "--data", "private.npz", "--attacks", "labels", "--defenses", "sign")
    words += ("--trials", "2", "--device", "cpu", "--out", "run")
    run(*words)
    assert holding(tmp_path / "run") == set()
    run(*words, "--keep-private")
    assert holding(tmp_path / "run") == {"truth.safetensors"}


def test_what_shows_or_holds_samples_is_for_the_owner(run, tmp_path):
    run(
        "audit",
        "--model",
        "mlp:hidden=8",
        "--data",
        "private.npz",
        "--attacks",
        "linear labels",
        "--defenses",
        "sign",
        "--trials",
        "2",
        "--device",
        "cpu",
        "--out",
        "run",
        "--keep-private",
    )
    files = {p.name: stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "run").rglob("*") if p.is_file()}
    private = {name for name in files if name in SHOWING or name.endswith(".safetensors")}
    assert {"report.html", "pairs.png", "truth.safetensors"} < private
    assert {name: files[name] for name in private} == dict.fromkeys(private, 0o600)


@pytest.mark.parametrize("more", [(), ("--json",), ("--debug",)], ids=["plain", "json", "debug"])
def test_no_private_value_is_said_or_logged(run, tmp_path, caplog, more):
    with caplog.at_level(logging.DEBUG):
        said = run(*attack("--keep-private"), *more) + run("report", "run", "--to", "officer") + caplog.text
    for path in (tmp_path / "run").iterdir():
        if path.suffix in (".json", ".md", ".xml") or path.name == "officer.html":
            said += path.read_text()
    assert not [digits for digits in DIGITS if digits in said]


def saved(path, inputs, labels):
    np.savez(path, inputs=inputs, labels=labels)


@pytest.mark.parametrize(
    ("inputs", "labels"),
    [
        (np.array([[np.nan, 0.61803]] * 4), np.zeros(4, int)),
        (np.full((4, 3), 0.5), np.array([0, 0, 61803, 61803]) * 100),
        (np.full((4, 3), 0.5), np.array([0, 0, -61803, -61803])),
        (np.full((4, 3), "61803"), np.zeros(4, int)),
        (np.full((4, 3), -61803), np.zeros(4, int)),
        (np.full((4, 3), 0.5), np.array([np.nan, 61803.5, 1, 2])),
    ],
    ids=["nan", "label", "negative label", "text", "whole", "broken label"],
)
def test_a_refusal_does_not_repeat_private_values(tmp_path, inputs, labels):
    path = tmp_path / "mine.npz"
    saved(path, inputs, labels)
    for read in (lambda: load(str(path), "test"), lambda: load_whole(str(path))):
        with pytest.raises(LeakgaugeError) as caught:
            read()
        assert "61803" not in str(caught.value)


@pytest.mark.parametrize("cell", ["61803x", "nan61803", "a,61803", "x" * 200 + "61803"])
def test_a_damaged_census_does_not_repeat_a_person(tmp_path, cell):
    (tmp_path / "adult").mkdir()
    row = "39, State-gov, 77516, Bachelors, 13, Never, Clerk, None, White, Male, 2174, 0, 40, Home, <=50K\n"
    (tmp_path / "adult/adult.data").write_text(row)
    (tmp_path / "adult/adult.test").write_text(row.replace("77516", cell))
    with pytest.raises(LeakgaugeError) as caught:
        load("adult", "test", tmp_path)
    assert "61803" not in str(caught.value)


def test_a_label_that_the_model_does_not_know_is_not_repeated(run, tmp_path):
    (tmp_path / "my.py").write_text(
        "import torch\nfrom torch import nn\n"
        "def net(): return nn.Sequential(nn.Flatten(), nn.Linear(4, 3))\n"
        "def batch(): return torch.full((2, 4), 0.61803), torch.tensor([61, 61803])\n"
    )
    torch.save({"1.weight": torch.ones(3, 4), "1.bias": torch.ones(3)}, tmp_path / "update.pt")
    said = run("audit", "--model", "my.py:net", "--update", "update.pt", "--data", "my.py:batch", code=2)
    assert "larger ones" in said
    assert not [digits for digits in DIGITS if digits in said]


def test_a_batch_behind_another_update_is_not_repeated(run, tmp_path):
    (tmp_path / "my.py").write_text(
        "import torch\nfrom torch import nn\n"
        "def net(): return nn.Sequential(nn.Flatten(), nn.Linear(4, 3))\n"
        "def batch(): return torch.full((2, 4), 0.61803), torch.tensor([1, 2])\n"
    )
    torch.save({"1.weight": torch.randn(3, 4), "1.bias": torch.randn(3)}, tmp_path / "update.pt")
    said = run("audit", "--model", "my.py:net", "--update", "update.pt", "--data", "my.py:batch", code=2)
    assert "update" in said
    assert not [digits for digits in DIGITS if digits in said]


def test_a_scenario_cannot_ask_for_it():
    """It is a matter of one command, not of what is measured: a scenario that is passed on writes nobody's samples."""
    assert "keep_private" not in Scenario().as_dict()
