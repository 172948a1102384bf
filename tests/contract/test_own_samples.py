"""Any kind of model and sample goes through the whole audit, and the leaks that are there are found."""

from __future__ import annotations

import importlib
import json
import re
import shlex
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from leakgauge import audit_update
from leakgauge.cli import main
from leakgauge.types import Client, Scenario

EXAMPLES = Path(__file__).parents[2] / "examples"
KINDS = {  # model -> data, loss
    "Table": ("table", "cross-entropy"),
    "GPT": ("tokens", "cross-entropy"),
    "Tagger": ("tagged", "cross-entropy"),
    "Regressor": ("regression", "mse"),
    "MultiLabel": ("multilabel", "bce"),
    "TwoInputs": ("two_inputs", "cross-entropy"),
    "ReturnsObject": ("pictures", "cross-entropy"),
    "Conv1d": ("series", "cross-entropy"),
    "LSTM": ("steps", "cross-entropy"),
    "ViT": ("pictures", "cross-entropy"),
    "Residual": ("pictures", "cross-entropy"),
}
FOUND = {  # what must be recovered from one sample's update: attack, at least so many of two
    "Table": ("cpl:steps=12", 2),
    "GPT": ("patch-embedding", 2),
    "Tagger": ("patch-embedding", 2),
    "Regressor": ("linear", 2),
    "TwoInputs": ("dlg:steps=150", 2),
    "ReturnsObject": ("linear", 2),
    "Conv1d": ("dlg:steps=200", 2),
    "ViT": ("patch-embedding", 2),
}


def audited(capsys: pytest.CaptureFixture[str], folder: Path, name: str, *more: str) -> dict:
    data, loss = KINDS[name]
    own = [f"--model={EXAMPLES}/any_kind.py:{name}", f"--data={EXAMPLES}/any_kind.py:{data}", f"--local=loss={loss}"]
    code = main(["audit", *own, "--device=cpu", "--json", "--fresh", f"--out={folder}", *more])
    out, errors = capsys.readouterr()
    assert code == 0, errors
    return json.loads(out)


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_is_audited_under_a_defense_and_has_a_page(name, tmp_path, capsys):
    attacks = "linear rank-one labels dlg:steps=2 mean-image random-guess"
    report = audited(capsys, tmp_path, name, f"--attacks={attacks}", "--defenses=prune:share=0.5", "--trials=2")
    ran = {f["attack"] for f in report["findings"] if f["error"] is None}
    assert {"labels", "dlg", "mean-image", "random-guess"} <= ran
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    shown = {
        "Table": 'class="features"',
        "GPT": 'class="tokens"',
        "Tagger": 'class="tokens"',
        "Regressor": 'class="features"',
        "Conv1d": 'class="lines"',
        "LSTM": 'class="lines"',
    }
    assert shown.get(name, "data:image/png") in page
    for file in ("report.md", "officer.html", "report.json"):
        assert (tmp_path / file).stat().st_size


@pytest.mark.parametrize(("name", "defense"), [("Regressor", "sensitivity"), ("GPT", "dp-sgd"), ("GPT", "clip:norm=1")])
def test_defenses_that_ask_for_labels_pass_targets_that_are_none(name, defense, tmp_path, capsys):
    report = audited(capsys, tmp_path, name, "--attacks=dlg:steps=1,restarts=1", f"--defenses={defense}", "--trials=2")
    assert not [f["error"] for f in report["findings"] if f["error"] and f["attack"].startswith("dlg")]


@pytest.mark.parametrize("name", FOUND)
def test_the_leak_of_one_sample_is_found(name, tmp_path, capsys):
    attack, least = FOUND[name]
    report = audited(capsys, tmp_path, name, f"--attacks={attack} mean-image", "--defenses=none", "--trials=2")
    (row,) = [r for r in report["summary"] if r["attack"] == attack.partition(":")[0]]
    assert row["met"] is None or row["met"] >= least or row["success_rate"]["recovered"] >= least


def gradient(name: str, samples: int):
    """A model, its gradient and the batch behind it, by plain autograd on the model's own inputs."""
    kinds = importlib.import_module("any_kind")
    torch.manual_seed(0)
    model, (x, y) = getattr(kinds, name)().eval(), getattr(kinds, KINDS[name][0])()
    x, y = ({k: v[:samples] for k, v in x.items()} if isinstance(x, dict) else x[:samples]), y[:samples]
    out = model(**x) if isinstance(x, dict) else model(x)
    out = getattr(out, "logits", out)
    loss = {"mse": lambda: F.mse_loss(out[:, 0], y), "bce": lambda: F.binary_cross_entropy_with_logits(out, y)}.get(
        KINDS[name][1], lambda: F.cross_entropy(out.flatten(0, -2), y.flatten())
    )
    loss().backward()
    return model, {n: p.grad for n, p in model.named_parameters() if p.grad is not None}, x, y


@pytest.fixture
def examples(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    yield
    sys.modules.pop("any_kind", None)


@pytest.mark.usefixtures("examples")
@pytest.mark.parametrize("name", KINDS)
def test_an_update_with_its_own_batch_is_held_against_it_and_audited(name):
    model, update, x, y = gradient(name, samples=2)
    scenario = Scenario(attacks=("labels", "dlg:steps=2"), local=Client(loss=KINDS[name][1]))
    report, _ = audit_update(model, update, x, y, scenario, device="cpu")
    assert report.findings
    assert "batch-unproven" not in {flag.id for flag in report.flags}


@pytest.mark.usefixtures("examples")
@pytest.mark.parametrize("name", ["Table", "GPT", "Regressor", "MultiLabel", "Conv1d"])
def test_an_update_without_its_batch_is_audited(name, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, update, *_ = gradient(name, samples=2)
    torch.save(update, "update.pt")
    torch.save(model.state_dict(), "model.pt")
    saved = ["--update=update.pt", "--weights=model.pt", "--blind", "--batch-size=2", "--attacks=labels dlg:steps=2"]
    report = audited(capsys, tmp_path / "run", name, *saved)
    assert report["verdict"]["leaks"] is False
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert ("<figure>" if name == "MultiLabel" else 'class="record"') in page


def test_the_model_and_the_samples_that_the_page_shows_are_audited(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (EXAMPLES.parent / "docs" / "how-to" / "audit-any-kind.md").read_text(encoding="utf-8")
    (block,), (command,) = (re.findall(rf"^```{kind}\n(.*?)^```", page, re.M | re.S) for kind in ("python", "sh"))
    (tmp_path / "clinic.py").write_text(block)
    more = ["--attacks=cpl:steps=12", "--defenses=none", "--trials=2", "--out=run"]
    assert main([*shlex.split(command)[1:], *more]) == 0
    assert "cpl" in capsys.readouterr().out


BAD = """
import torch
from torch import nn

def unequal():
    return {"ids": [[1, 2, 3], [1, 2]] * 10}, [0, 1] * 10

def misnamed():
    return {"numbers": torch.rand(20, 4), "words": torch.randint(0, 5, (20, 3))}, torch.arange(20) % 2

def numbers():
    return torch.randn(20, 4), torch.randn(20)

def too_many():
    return {"numbers": torch.rand(20, 4), "categories": torch.arange(60).reshape(20, 3)}, torch.arange(20) % 2

def none():
    return {}, torch.arange(20) % 2

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.fc = nn.Embedding(5, 4), nn.Linear(16, 2)

    def forward(self, numbers, categories):
        return self.fc(torch.cat((numbers, self.embed(categories).flatten(1)), 1))

def line():
    return nn.Linear(4, 1)

def three():
    return nn.Linear(4, 3)
"""


@pytest.mark.parametrize(
    ("model", "data", "more", "words"),
    [
        ("Net", "unequal", (), "lengths from 2 to 3; pad them to 3 and give a dictionary"),
        ("Net", "misnamed", (), "a dictionary with 'numbers', 'categories', got arrays called 'numbers', 'words'"),
        ("line", "numbers", (), "one for numbers: mse, l1, huber or FILE.py:FUNCTION, got cross-entropy"),
        ("three", "numbers", ("--local=loss=mse",), "beside targets of shape (2,), got shape (2, 3)"),
        ("Net", "too_many", (), "such as the model knows, got categories to 59"),
        ("Net", "none", (), "at least one array, got none"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(model, data, more, words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.py").write_text(BAD)
    code = main(["audit", f"--model=bad.py:{model}", f"--data=bad.py:{data}", "--attacks=labels", *more])
    errors = capsys.readouterr().err.strip()
    assert code == 2
    assert words in errors
    assert "\n" not in errors
