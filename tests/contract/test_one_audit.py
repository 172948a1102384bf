"""There is one audit: every source of victims goes the same short way from a command to an attack, in short steps."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import leakgauge
from leakgauge.attacks.linear import Linear
from leakgauge.cli.audit import audit
from leakgauge.client.chain import client_step
from leakgauge.data import draw_victims, load
from leakgauge.models import load_model
from leakgauge.recording.recorder import Recorder
from leakgauge.types import Client

SOURCE = Path(leakgauge.__file__).parent
WAY = (  # between the command and what an attack does
    "leakgauge.cli.running",
    "leakgauge.audit.run",
    "leakgauge.execution.resume",
    "leakgauge.execution.scheduler",
    "leakgauge.execution.work_units",
    "leakgauge.execution.table_cell",
    "leakgauge.execution.batching",
    "leakgauge.types.attack",
)
SHORT = 60  # lines of a function
WRITTEN_SHORT = ("audit", "setup", "recording", "execution", "cli/audit.py", "cli/running.py", "cli/recorded.py")


@pytest.fixture
def way(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The modules of ours that called the attack, from the command on, each once."""
    seen: list[str] = []
    original = Linear.solve

    def noting(self, observation, seeds, progress):
        frame = sys._getframe(1)
        names: list[str] = []
        while frame is not None:
            name = frame.f_globals.get("__name__", "")
            names += [name] if name.startswith("leakgauge.") else []
            frame = frame.f_back
        seen[:] = dict.fromkeys(reversed(names))
        return original(self, observation, seeds, progress)

    monkeypatch.setattr(Linear, "solve", noting)
    return seen


def saved_update(folder: Path) -> str:
    victims = draw_victims(load("digits", "test"), trials=1, batch_size=1, seed=8)
    tensors = client_step(Client())(load_model("mlp", load("digits").spec, seed=0), victims, (0,)).tensors
    torch.save({name: t[0] for name, t in tensors.items()}, folder / "update.pt")
    return str(folder / "update.pt")


def recording(folder: Path) -> str:
    inputs, labels = load("digits", "test").take(torch.tensor([0]))
    model = load_model("mlp", load("digits").spec, 0)
    torch.nn.functional.cross_entropy(model(inputs), labels).backward()
    recorder = Recorder(folder / "recorded", keep_private=True)
    recorder.gradient(model, samples=1, client="c", round=1, private=(inputs, labels))
    return str(recorder.folder)


@pytest.mark.parametrize(
    "source",
    [
        lambda _: {"defenses": "none", "trials": 1},
        lambda folder: {"update": saved_update(folder)},
        lambda folder: {"recorded": recording(folder)},
        lambda folder: {"recorded": recording(folder), "blind": True},
    ],
    ids=["simulated", "saved", "recorded", "blind"],
)
def test_at_most_eight_modules_stand_between_the_command_and_the_attack(
    way: list[str], tmp_path: Path, source: Callable[[Path], dict[str, object]]
) -> None:
    assert audit(model="mlp", data="digits", attacks="linear", out=tmp_path / "out", **source(tmp_path)) == 0
    assert (tmp_path / "out" / "report.json").is_file()
    begin = way.index("leakgauge.cli.audit")
    assert tuple(way[begin + 1 :]) == WAY
    assert len(WAY) <= 8


def test_functions_of_the_audit_fit_a_screen() -> None:
    long = []
    for path in (
        p for place in WRITTEN_SHORT for p in ([SOURCE / place] if "." in place else (SOURCE / place).glob("*.py"))
    ):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno >= SHORT:
                long.append(f"{path.relative_to(SOURCE)}: {node.name} has {node.end_lineno - node.lineno + 1} lines")
    assert not long
