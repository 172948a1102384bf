"""Which command lines stand in the golden files, and the files that they want: all of it small enough for seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from _surface import record_federation
from safetensors.torch import save_file
from torch import Tensor, nn

FEATURES, CLASSES = 12, 3
OWN_MODEL = f"""
import torch
from torch import nn


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear({FEATURES}, 16), nn.ReLU(), nn.Linear(16, {CLASSES}))
"""
SCENARIO = """
model = "mlp:hidden=16"
data = "digits"
batch_size = 2
trials = 2
precision = "float64"
attacks = ["linear", "peeling"]
defenses = ["clip:norm=0.5+quantize:bits=8"]
variants = "adaptive"

[partition]
kind = "dirichlet"
alpha = 0.5

[training]
rounds = 2
"""
OWN = "--model net.py:net --weights weights.safetensors"
EXACT = "--precision float64 --device cpu"


@dataclass(frozen=True)
class CommandCase:
    """Command lines that run one after another in one folder, after `prepare` has put files there."""

    name: str
    commands: tuple[str, ...]
    prepare: Callable[[Path], None] = lambda _: None


def own_files(folder: Path) -> None:
    """net.py, its weights, two clients' batches, the gradient and the weight difference of the first."""
    model, inputs, labels = _own_net(folder)
    _save_arrays(folder / "victims.npz", inputs[1], labels[1])
    nn.functional.cross_entropy(model(inputs[1]), labels[1]).backward()
    gradient = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    save_file({name: tensor.contiguous() for name, tensor in gradient.items()}, folder / "update.safetensors")
    save_file({n: (-0.1 * g).contiguous() for n, g in gradient.items()}, folder / "difference.safetensors")


def recorded_files(folder: Path) -> None:
    """net.py, its weights, and two rounds of two clients: once with their samples, once without."""
    model, inputs, labels = _own_net(folder)
    clients = {name: (inputs[i], labels[i]) for i, name in enumerate(("Ann", "Bob"))}
    record_federation(folder / "kept", model, clients, keep=True)
    record_federation(folder / "bare", model, clients, keep=False)
    _save_arrays(folder / "other.npz", inputs[2:].reshape(-1, FEATURES), labels[2:].reshape(-1))


def settings(folder: Path) -> None:
    """A scenario file."""
    (folder / "own.toml").write_text(SCENARIO, encoding="utf-8")


def checkpoints(folder: Path) -> None:
    """The own model's weights as they are, and with one class that answers alone."""
    own_files(folder)
    model, _, _ = _own_net(folder)
    changed = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    changed["2.weight"][1:], changed["2.bias"][1:] = 0.0, 1000.0
    save_file(changed, folder / "tampered.safetensors")


def _own_net(folder: Path) -> tuple[nn.Module, Tensor, Tensor]:
    """The model, 20 batches of two samples (20, 2, F) in [0, 1] and their labels (20, 2)."""
    (folder / "net.py").write_text(OWN_MODEL, encoding="utf-8")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), nn.Linear(16, CLASSES))
    save_file(model.state_dict(), folder / "weights.safetensors")
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(40).reshape(20, 2) % CLASSES
    return model, torch.rand(20, 2, FEATURES, generator=generator), labels


def _save_arrays(path: Path, inputs: Tensor, labels: Tensor) -> None:
    np.savez(path, inputs=inputs.numpy(), labels=labels.numpy())


SMALL = "--model mlp:hidden=16 --data digits"
LENET = "--model lenet-dlg:filters=3 --data digits"
KINDS = ("attacks", "defenses", "aggregators", "encryptions", "models", "data", "metrics", "recipes")


def command_cases() -> tuple[CommandCase, ...]:
    """All of them; together they take about a quarter of a minute on one core."""
    return (
        CommandCase(
            "simulated",
            (
                f"audit {LENET} --trials 2 {EXACT} --attacks 'labels inverting-gradients:steps=3 ggl:steps=2'"
                " --defenses 'gaussian:std=0.01 clip:norm=1' --out run --json",
                "report run --to markdown --out again.md",
                "report run --to json --out again.json",
            ),
        ),
        CommandCase(
            "ways",
            (
                f"audit {LENET} --trials 2 {EXACT} --attacks 'labels inverting-gradients:steps=3'"
                " --defenses 'clip:norm=1+prune:share=0.5 key-lock:length=8' --out run --json",
            ),
        ),
        CommandCase(
            "gate",
            (
                f"audit --model mlp:hidden=16 --data breast-cancer --trials 3 {EXACT} --attacks 'linear rank-one'"
                " --defenses gaussian:std=0.1 --gate mse=0.1 --out run",
                f"audit --model mlp:hidden=16 --data breast-cancer --trials 3 {EXACT} --attacks linear"
                " --defenses prune:share=0.5 --gate mse=0.0000001,confidence=0.5 --out other",
                "report run --compare other --out both",
            ),
        ),
        CommandCase(
            "local-training",
            (
                f"audit {SMALL} --trials 2 --batch-size 2 --local kind=fedavg,epochs=2,lr=0.1 {EXACT}"
                " --attacks 'linear idlg:steps=2,optimizer=adam,restarts=1' --defenses secure-aggregation:clients=2"
                " --ledger --out run --json",
            ),
        ),
        CommandCase("suite", (f"audit {SMALL} --trials 2 {EXACT} --defenses none --out run",)),
        CommandCase("settings", ("audit --init", "audit own.toml --seed 1 --out run"), settings),
        CommandCase(
            "saved-update",
            (
                f"audit {OWN} --data victims.npz --update update.safetensors {EXACT}"
                " --attacks 'labels linear peeling idlg:steps=2,optimizer=adam,restarts=1' --out run --json",
                f"audit {OWN} --data victims.npz --update difference.safetensors"
                f" --local kind=fedavg,lr=0.1 {EXACT} --attacks peeling --out difference",
                f"attack linear {OWN} --data victims.npz --update update.safetensors --out replay --json",
            ),
            own_files,
        ),
        CommandCase(
            "blind",
            (
                f"audit {OWN} --data victims.npz --blind --batch-size 2 --update update.safetensors {EXACT}"
                " --attacks 'labels linear peeling idlg:steps=2,optimizer=adam,restarts=1' --out run --json",
                f"audit {OWN} --data victims.npz --blind --batch-size 2 --update update.safetensors --attacks peeling"
                " --out again",
            ),
            own_files,
        ),
        CommandCase(
            "recorded",
            (
                f"audit --recorded kept {OWN} --data other.npz {EXACT} --attacks 'labels linear peeling'"
                " --out run --json",
                f"audit --recorded bare --round 2 --blind {OWN} --data other.npz {EXACT} --attacks 'labels peeling'"
                " --out blind --json",
                "recorded kept",
                f"recorded kept {OWN} --data other.npz --attacks 'labels linear' --defense gaussian:std=0.01"
                " --device cpu --out all --json",
                f"recorded bare {OWN} --data other.npz --device cpu --out bare-all",
            ),
            recorded_files,
        ),
        CommandCase(
            "tampering",
            (
                f"attack imprint --bins 8 {SMALL} --batch-size 3 --trials 2 --threat-model malicious-architecture"
                f" {EXACT} --out imprint --json",
                f"attack trap-weights {SMALL} --batch-size 3 --trials 2 --threat-model malicious-parameters"
                f" --defense gaussian:std=0.001 {EXACT} --out traps",
                f"audit {SMALL} --batch-size 3 --trials 2 --threat-model malicious-architecture {EXACT}"
                " --attacks 'imprint:bins=8 trap-weights' --defenses clip:norm=0.1 --out run",
            ),
        ),
        CommandCase(
            "property",
            (
                f"property {SMALL} --trials 12 --batch-size 6 --batches 40 --trees 10 --property class:3"
                " --defenses prune:share=0.5 --device cpu --out run --json",
                f"property {SMALL} --trials 12 --batch-size 6 --batches 40 --trees 10 --property class:3 --device cpu",
            ),
        ),
        CommandCase(
            "triage",
            (
                f"triage {SMALL} --batch-size 2 --device cpu --out run --json",
                f"triage {LENET} --defense gaussian:std=0.1 --device cpu",
            ),
        ),
        CommandCase(
            "inspect",
            (
                "inspect net.py:net --weights weights.safetensors --data victims.npz --device cpu",
                "inspect net.py:net --weights tampered.safetensors --data victims.npz --device cpu --out run --json",
                "inspect tampered.safetensors",
            ),
            checkpoints,
        ),
        CommandCase(
            "train",
            (
                f"train {SMALL} --rounds 3 --partition kind=iid,clients=20 --federation per_round=4,evaluate=1 {EXACT}"
                " --defense gaussian:std=0.01 --defense prune:share=0.5 --out run --json",
                f"train {SMALL} --rounds 2 --partition kind=iid,clients=20 --federation per_round=4 {EXACT}"
                " --aggregator fedadam",
            ),
        ),
        CommandCase(
            "recipe",
            (
                "lab reproduce ren2022fedboosting --table 4.2.3 --quick --device cpu --out run --json",
                "lab reproduce ren2022fedboosting --table 4.2.3 --list",
            ),
        ),
        CommandCase("lists", tuple(f"list {kind} --json" for kind in KINDS)),
        CommandCase(
            "refusals",
            (
                "audit --model mlp --data digits --attacks dgl",
                f"audit {SMALL} --defenses gausian",
                f"audit {SMALL} --defenses 'mixup gaussian:std=1' --attacks 'imprint linear' --trials 2 --out run",
                "report nothing",
                "attack linear --trials 0",
            ),
        ),
    )
