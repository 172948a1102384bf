"""Planted audits, each by the command line: does each come to what was fixed before it was run?

    python benchmarks/planted/run.py [--suite quick] [--only NAME ...]

Writes README.md beside it. Needs CIFAR-10 and MNIST (`LEAKGAUGE_DATA`). The runs stay in --runs; the same command goes
on from there, and --render writes the page from what is finished. Exit code 1 if any comes to something else.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from leakgauge.data import load
from leakgauge.defenses.accounting import sigma_for
from leakgauge.federation.rounds import train
from leakgauge.models import load_model
from leakgauge.servers.class_fishing import ClassFishing
from leakgauge.types import SUITE_NAMES, DataSpec, Training

HERE = Path(__file__).parent
TRIALS = 6
EPSILON_ONE = f"dp-sgd:norm=1,sigma={sigma_for(1.0, 1e-5, 1.0, 1):.4g},q=1,rounds=1,delta=1e-5"
MLP = "mlp:hidden=1000,activation=relu,init=default"
Files = Callable[[Path], list[str]]  # writes what a case needs into a folder, gives the flags that name it


@dataclass(frozen=True)
class Case:
    """`right` is a standing of the audit (leaks, protected, unknown), `refused`, `tampered` or `no tampering`."""

    name: str
    right: str
    command: str  # its first word is a command of leakgauge
    files: Files | None = None
    suite: bool = False  # does it play the suite that is asked for?
    because: str = ""  # words of a refusal that is right


def own_update(model: str, size: int, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> Files:
    """The gradient of one batch of CIFAR-10, changed, beside the model and the batch."""

    def write(folder: Path) -> list[str]:
        net, spec = _network(model, seed=0), load("cifar10", "test").spec
        inputs, labels = load("cifar10", "test").take(torch.arange(size))
        nn.functional.cross_entropy(net(inputs), labels).backward()
        gradient = {name: p.grad for name, p in net.named_parameters() if p.grad is not None}
        save_file({n: t.contiguous() for n, t in net.state_dict().items()}, folder / "weights.safetensors")
        save_file({n: t.contiguous() for n, t in change(gradient).items()}, folder / "update.safetensors")
        np.savez(folder / "batch.npz", inputs=inputs.numpy(), labels=labels.numpy(), classes=spec.classes)
        flags = {"--weights": "weights.safetensors", "--update": "update.safetensors", "--data": "batch.npz"}
        return [word for flag, name in flags.items() for word in (flag, str(folder / name))]

    return write


def times(factor: float) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    return lambda gradient: {name: factor * t for name, t in gradient.items()}


def another_models(_: dict[str, Tensor]) -> dict[str, Tensor]:
    net = _network("lenet-dlg", seed=1)
    inputs, labels = load("cifar10", "test").take(torch.arange(1))
    nn.functional.cross_entropy(net(inputs), labels).backward()
    return {name: p.grad for name, p in net.named_parameters() if p.grad is not None}


def received(change: Callable[[nn.Module, DataSpec], nn.Module]) -> Files:
    """A LeNet-5 that was trained on MNIST, then changed."""

    def write(folder: Path) -> list[str]:
        samples = load("mnist", "train")
        net = train(load_model("lenet5-mkor", samples.spec, 0), samples, Training(rounds=150), 0)
        state = change(net, samples.spec).state_dict()
        save_file({n: t.contiguous() for n, t in state.items()}, folder / "received.safetensors")
        return ["--weights", str(folder / "received.safetensors")]

    return write


def with_few_weights(net: nn.Module, _: DataSpec) -> nn.Module:
    """90 % of all weights set to zero by their size: pruning, and no attack."""
    sizes = torch.cat([p.detach().abs().flatten() for n, p in net.named_parameters() if "weight" in n])
    limit = sizes.kthvalue(int(0.9 * len(sizes))).values
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if "weight" in name:
                parameter.mul_(parameter.abs() > limit)
    return net


def fishing_head(net: nn.Module, spec: DataSpec) -> nn.Module:
    return ClassFishing(target=3).prepare(net, spec)


AUDIT = f"audit --trials {TRIALS} --data cifar10"
OWN = "audit --model lenet-dlg"
CASES = (
    Case("leaky", "leaks", f"{AUDIT} --model lenet-dlg --defenses none", suite=True),
    Case("broken defense", "leaks", f"{AUDIT} --model lenet-cpl --defenses soteria:share=0.8", suite=True),
    Case("guarantee", "protected", f"{AUDIT} --model lenet-dlg --defenses {EPSILON_ONE}", suite=True),
    Case("unknown", "unknown", f"{AUDIT} --model resnet18 --batch-size 32 --defenses gaussian:std=0.001", suite=True),
    Case("wide layer", "leaks", f"{AUDIT} --model {MLP} --batch-size 128 --attacks peeling --defenses none"),
    Case(
        "wide layer in float16",
        "leaks",
        f"audit --model {MLP} --attacks peeling",
        own_update(MLP, 128, lambda g: {n: t.half() for n, t in g.items()}),
    ),
    Case(
        "tampering server",
        "leaks",
        f"{AUDIT} --model lenet-dlg --batch-size 8 --defenses none --threat-model malicious-architecture",
        suite=True,
    ),
    Case("fishing head received", "tampered", "inspect lenet5-mkor --data mnist", received(fishing_head)),
    Case("sparse model received", "no tampering", "inspect lenet5-mkor --data mnist", received(with_few_weights)),
    Case(
        "generator under noise",
        "unknown",
        f"{AUDIT} --model lenet-dlg --attacks ggl:steps=300,restarts=1 --defenses gaussian:std=1",
    ),
    Case("zeros", "refused", OWN, own_update("lenet-dlg", 1, times(0.0)), because="zeros"),
    Case("not a number", "refused", OWN, own_update("lenet-dlg", 1, times(torch.nan)), because="finite"),
    Case(
        "another model's update",
        "refused",
        OWN,
        own_update("lenet-dlg", 1, another_models),
        because="what the batch in --data gives",
    ),
)


@dataclass(frozen=True)
class Outcome:
    came_to: str
    says: str
    minutes: float
    where: str

    @classmethod
    def read(cls, path: Path) -> Outcome | None:
        return cls(**json.loads(path.read_text())) if path.is_file() else None


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--suite", choices=SUITE_NAMES, default="quick")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--runs", type=Path, default=Path("leakgauge-runs/planted"))
    parser.add_argument("--only", nargs="*", default=None, help="names of cases")
    parser.add_argument("--render", action="store_true", help="run nothing")
    asked = parser.parse_args()
    outcomes: dict[str, Outcome] = {}
    for case in CASES:
        folder = asked.runs / (asked.suite if case.suite else "any") / case.name.replace(" ", "-").replace("'", "")
        if not asked.render and (asked.only is None or case.name in asked.only):
            _run(case, folder, asked.suite, asked.device)
        if (found := Outcome.read(folder / "outcome.json")) is not None:
            outcomes[case.name] = found
    (HERE / ("README.md" if asked.suite == "quick" else f"{asked.suite}.md")).write_text(
        _page(asked.suite, outcomes), encoding="utf-8"
    )
    return int(any(o.came_to != c.right for c in CASES if (o := outcomes.get(c.name)) is not None))


def _run(case: Case, folder: Path, suite: str, device: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    words = [*_words(case, suite), *(case.files(folder) if case.files else [])]
    began = time.perf_counter()
    out = folder / "run"
    done = subprocess.run(
        [sys.executable, "-m", "leakgauge", *words, "--device", device, "--out", str(out)],
        capture_output=True,
        text=True,
        check=False,
    )
    minutes = (time.perf_counter() - began) / 60
    where = f"{device}, exit code {done.returncode}"
    report = out / "report.json"
    if words[0] == "inspect":
        came = {0: "no tampering", 1: "tampered"}.get(done.returncode, "failed")
        found = Outcome(came, _last_line(done.stdout), minutes, where)
    elif done.returncode == 0 and report.is_file():
        plain = json.loads(report.read_text())
        entry, environment = plain["verdict"]["configurations"][-1], plain["environment"]
        found = Outcome(entry["standing"], entry["sides"], minutes, f"{environment['device']}, {environment['commit']}")
    else:
        right = done.returncode == 2 and case.because in _last_line(done.stderr)
        came = "refused" if right else "failed"
        found = Outcome(came, _last_line(done.stderr), minutes, where)
    found = replace(found, says=found.says.replace(f"{folder}/", ""))
    (folder / "outcome.json").write_text(json.dumps(vars(found), indent=2), encoding="utf-8")


def _words(case: Case, suite: str) -> list[str]:
    return [*shlex.split(case.command), *(["--suite", suite] if case.suite else [])]


def _network(name: str, seed: int) -> nn.Module:
    return load_model(name, load("cifar10", "test").spec, seed)


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.strip().splitlines()) if line.strip()), "")


def _page(suite: str, outcomes: dict[str, Outcome]) -> str:
    lines = [
        f"<!-- Written by benchmarks/planted/run.py --suite {suite}; edit that. -->",
        "",
        f"# Planted audits, `--suite {suite}`",
        "",
        f"What each must come to was fixed before it was run. {TRIALS} victims or one saved update, seed 0.",
        "Minutes are by the clock, with all that a command does.",
        "",
        "| case | must be | came to | what it says | minutes | device, commit |",
        "|---|---|---|---|---|---|",
        *(_line(case, outcomes.get(case.name)) for case in CASES),
        "",
        "```sh",
        *(f"leakgauge {_shown(case, suite)}" for case in CASES),
        "```",
        "",
    ]
    return "\n".join(lines)


def _line(case: Case, outcome: Outcome | None) -> str:
    if outcome is None:
        return f"| {case.name} | {case.right} | not run | | | |"
    says = outcome.says.replace("|", "/")
    return f"| {case.name} | {case.right} | **{outcome.came_to}** | {says} | {outcome.minutes:.1f} | {outcome.where} |"


def _shown(case: Case, suite: str) -> str:
    return shlex.join(_words(case, suite)) + (" ..." if case.files else "")


if __name__ == "__main__":
    sys.exit(main())
