"""Every command that writes, as small as it can be, what its result is, and a process of its own to run it in."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from leakgauge.cli.main import main
from leakgauge.data import load
from leakgauge.models import load_model
from leakgauge.recording.recorder import Recorder

AUDIT = "audit --model mlp:hidden=4 --data breast-cancer --attacks linear --defenses prune --trials 2 --plain"
PICTURES = "--model mlp:hidden=4 --data digits"
for _slow in ("torch._dynamo", "sklearn.datasets", "sklearn.ensemble", "scipy.optimize", "matplotlib.pyplot"):
    import_module(_slow)  # once, not in each process
_CHANGING = re.compile(r"second|commit|load|time|began|digest|memory|per_")  # keys of what differs between equal runs
_DRAWN = re.compile(r"\.[0-9a-f]{8}(?=\.safetensors$)")  # part of a cell's file name, another one each time


@dataclass(frozen=True)
class WritePath:
    """A command, the commands that are run in its folder before, and what else is laid there."""

    words: str
    before: tuple[str, ...] = ()
    prepare: Callable[[Path], None] = lambda _: None


def record(folder: Path, sample: int = 1) -> None:
    """The update of a client, with its sample."""
    data, recorder = load("digits", "test", None), Recorder(folder / "recorded", keep_private=True)
    model = load_model("mlp:hidden=4", data.spec, 0)
    inputs, labels = data.take(torch.tensor([sample]))
    torch.nn.functional.cross_entropy(model(inputs), labels).backward()
    recorder.gradient(model, samples=1, client="c", round=1, private=(inputs, labels))


WRITE_PATHS = {
    "audit": WritePath(f"{AUDIT} --keep-private --out run"),
    "report": WritePath("report run --out pages", (f"{AUDIT} --keep-private --out run",)),
    "attack": WritePath(f"attack linear {PICTURES} --trials 1 --keep-private --out run"),
    "train": WritePath(
        "train --data breast-cancer --model mlp:hidden=4 --defense gaussian:std=0.1 --rounds 2 "
        "--partition kind=iid,clients=4 --federation per_round=2 --out t"
    ),
    "train model": WritePath(
        "train model --data breast-cancer --model mlp:hidden=4 --training rounds=3 --out n.safetensors"
    ),
    "train generator": WritePath(
        "train generator --data digits --steps 2 --latent 3 --width 4 --device cpu --out g.safetensors"
    ),
    "lab train-locked": WritePath(
        "lab train-locked --data digits --model lenet-dlg:filters=4,activation=relu,init=default --rounds 1 "
        "--clients 2 --out l"
    ),
    "lab search-policy": WritePath(
        f"lab search-policy {PICTURES} --candidates 2 --pictures 2 --batches 1 --batch-size 4 --least-accuracy -1e9 "
        "--out s"
    ),
    "lab reproduce": WritePath(
        "lab reproduce wei2020cpl --cell '3 | Breast Cancer | CPL' --trials 1 --seeds 1 --device cpu --out r "
        "--runs r/runs"
    ),
    "property": WritePath(
        f"property {PICTURES} --trials 4 --batch-size 4 --batches 20 --trees 2 --device cpu --property class:3 --out p"
    ),
    "inspect": WritePath("inspect mlp:hidden=4 --data digits --out i"),
    "triage": WritePath(f"triage {PICTURES} --out t"),
    "lab two-gaussians": WritePath("lab two-gaussians --case flipped --seeds 1 --rounds 1 --samples 20 --out g"),
    "lab read-words": WritePath(
        "lab read-words --aggregator fedavg --device cpu --out w --training "
        "rounds=1,words=20,tested=5,longest=3,image_width=48,width=2,batch_size=10"
    ),
    "recorded": WritePath(f"recorded recorded {PICTURES} --out o", prepare=record),
    "lab reidentify": WritePath(
        "lab reidentify run --steps 1 --device cpu --out who",
        (f"attack linear {PICTURES} --trials 2 --keep-private --out run",),
    ),
}


def _nothing() -> None:
    pass


def run(
    words: str, folder: Path, before: Callable[[], Any] = _nothing, after: Callable[[], Any] = _nothing
) -> tuple[int, str]:
    """The command in a process of its own, in that folder: its exit code, or minus the signal, and what it said.

    `before` and `after` are called in that process.
    """
    said = folder.with_suffix(".said")
    child = os.fork()
    if child == 0:
        code = 71
        try:
            os.chdir(folder)
            with said.open("w") as out:
                os.dup2(out.fileno(), 1)
                os.dup2(out.fileno(), 2)
            sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
            before()
            code = main(shlex.split(words))
            after()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said.read_text(errors="replace")


def result(folder: Path, shown: tuple[str, ...] = ("",)) -> dict[str, Any]:
    """What the command left, without what differs from one run to the next: times, and what holds them.

    Only of files whose names begin as those in `shown`.
    """
    found: dict[str, Any] = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = path.relative_to(folder).as_posix()
        if not name.startswith(shown) or path.name.startswith("."):  # locks, states: the next command takes them
            continue
        name = _DRAWN.sub("", name)
        if path.suffix == ".json":
            found[name] = timeless(json.loads(path.read_text()))
        elif path.suffix == ".safetensors":
            with safe_open(path, framework="pt") as file:
                found[name] = {key: file.get_tensor(key).tolist() for key in file.keys()}  # noqa: SIM118
        elif path.suffix == ".png" or shown != ("",):
            found[name] = path.read_bytes()
        elif "sqlite" not in name:
            found[name] = path.stat().st_size > 0  # pages show times, which differ between two runs
    return found


def timeless(value: Any) -> Any:
    """The same without the keys that name times and loads."""
    if isinstance(value, dict):
        return {k: timeless(v) for k, v in value.items() if not _CHANGING.search(k)}
    return [timeless(v) for v in value] if isinstance(value, list) else value
