"""What earlier runs left, and scenarios: recordings, reports, searches, recipes, states of a training."""

from __future__ import annotations

import contextlib
import io
import json
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from files_of_tensors import safetensors_traps
from reader import TABLE, Reader, Traps, json_traps, model, weights

from leakgauge.audit import federated_training
from leakgauge.audit.run import run_audit
from leakgauge.cli.audit import read_scenario
from leakgauge.cli.report import report
from leakgauge.data.loading import load
from leakgauge.execution.store import Store
from leakgauge.federation import rounds
from leakgauge.lab import policy_search, recipes
from leakgauge.lab.reproduce import measured, running
from leakgauge.lab.reproduce.recipe import pieces_of
from leakgauge.models import load_model
from leakgauge.reading.sealed import DIGEST, sealed, with_digest
from leakgauge.recording.recorded_folder import Origin, left_out, private_of, read_folder, tensors_of
from leakgauge.recording.recorder import Recorder
from leakgauge.report import to_json
from leakgauge.types import Federation, Partition, Scenario, Training


def make_recorded(folder: Path) -> None:
    recorder = Recorder(folder / "recorded", keep_private=True, updates=1)
    tensors = {n: torch.ones_like(t) for n, t in weights().items()}
    private = torch.zeros(2, 4), torch.zeros(2, dtype=torch.int64)
    recorder.add("weight_delta", tensors, Origin(samples=2, lr=0.1), weights=weights(), private=private)
    (folder / "recorded/left-out.json").write_text('{"updates": 3}')


def read_recorded(folder: Path) -> object:
    entries = read_folder(folder / "recorded")
    left_out(folder / "recorded")
    read = [tensors_of(entry, model()) for entry in entries]
    if entries[0].weights is not None:
        load_model("mlp:hidden=5", TABLE, 0, str(entries[0].weights))
    return read, [entry.local() for entry in entries], private_of(entries)


def described_traps(folder: Path) -> Traps:
    told = json.loads((folder / "recorded/update-00000.json").read_text())
    changes: tuple[dict[str, Any], ...] = (
        {"lr": 10**400},
        {"samples": 10**400},
        {"epochs": 10**400},
        {"update": "../x.safetensors"},
        {"update": "/x.safetensors"},
        {"private": "a\0.safetensors"},
        {"weights": ["x"]},
        {"client": {}},
        {"batchnorm": "x"},
        {"lr": True},
        {"round": True},
        {"private": told["update"]},
        {"update": "n" * 9999},
    )
    return tuple(json.dumps(told | change).encode() for change in changes) + json_traps(folder)


def private_traps(_: Path) -> Traps:
    labels = torch.zeros(2, dtype=torch.int64)
    return tuple(
        safetensors.torch.save(content)
        for content in (
            {"inputs": torch.zeros(3, 4), "labels": labels},
            {"inputs": torch.zeros(2, 4).bool(), "labels": labels},
            {"inputs": torch.full((2, 4), float("nan")), "labels": labels},
            {"inputs": torch.zeros(2, 4), "labels": labels.float() + 0.5},
            {"inputs": torch.zeros(2, 4), "labels": labels - 3},
            {"inputs": torch.zeros(2, 4), "labels": labels[:, None]},
            {"inputs": torch.zeros(()), "labels": torch.zeros((), dtype=torch.int64)},
        )
    )


def make_scenario(folder: Path) -> None:
    (folder / "scenario.toml").write_text(
        'model = "mlp"\ndata = "breast-cancer"\nbatch_size = 2\ntrials = 3\ndefenses = ["gaussian:std=0.1"]\n'
        'gate = "mse=0.1"\nledger = false\n[local]\nkind = "fedavg"\nlr = 0.1\n[partition]\nclients = 5\n'
    )


def scenario_traps(_: Path) -> Traps:
    return (
        b"model = " + b"[" * 50_000,
        b"a." * 20_000 + b"a=1",
        b"batch_size = 1e400",
        b"trials = 99999999999999999999",
        b"local = 3",
        b"[local]\nlr = 2020-01-01",
        b"[local]\nlr = nan",
        b"[local]\nepochs = inf",
        b"model = {}",
        b"[local.kind]\na = 1",
        b"defenses = [1]",
        b'model = "\\uD800"',
        b"[partition]\nclients = true",
        b"\xff",
        b"x = 0x" + b"f" * 9000,
        b"x = " + b"9" * 9000,
    )


@cache
def finished_run() -> dict[str, bytes]:
    """What a small finished audit leaves."""
    scenario = Scenario(
        model="mlp:hidden=5", data="breast-cancer", attacks=("linear",), defenses=("prune:share=0.9",), trials=2
    )
    with tempfile.TemporaryDirectory() as scratch:
        found, _ = run_audit(scenario, device="cpu", out=Path(scratch), keep_private=True)
        kept = {str(p.relative_to(scratch)): p.read_bytes() for p in Path(scratch).rglob("*") if p.is_file()}
    renamed = {("cells/first" if name.startswith("cells/") else name): body for name, body in sorted(kept.items())}
    return {**kept, "cells/first": renamed["cells/first"], "report.json": to_json(found).encode()}


def make_run(folder: Path) -> None:
    for run in ("one", "other"):
        for name, content in finished_run().items():
            if run == "one" or name == "report.json":
                (folder / run / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / run / name).write_bytes(content)


def read_store(folder: Path) -> object:
    """As a report reads a run, and as the same audit goes on with it."""
    pictures = Store(folder / "one", make=False).pictures()
    store = Store(folder / "one")
    keys = json.loads(finished_run()["cells.json"])["content"].values()
    return pictures, [store.load(key) for key in keys]


def read_cell(folder: Path) -> None:
    """The same, where a file of finished trials is damaged."""
    key = min(name for name in finished_run() if name.startswith("cells/") and name != "cells/first")[6:].split(".")[0]
    os.replace(folder / "one/cells/first", folder / f"one/cells/{key}.00000.damaged.safetensors")
    read_store(folder)


def cells_traps(folder: Path) -> Traps:
    of = json.loads(finished_run()["cells.json"])["of"]
    contents = [{"linear | none | plain": key} for key in ("../../x", "/tmp", {}, "**/*", 1)] + [[], None, "x"]
    return (*(sealed(of, content) for content in contents), *json_traps(folder))


def read_report(folder: Path) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        for form in ("html", "officer", "markdown", "summary", "junit", "json"):
            report(folder / "one", form, folder / "out")


def read_comparison(folder: Path) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        report(folder / "other", "html", folder / "out", folder / "one")


def report_traps(_: Path) -> Traps:
    plain = json.loads(finished_run()["report.json"])

    def changed(*path: Any, to: Any) -> bytes:
        copy = json.loads(json.dumps(plain))
        inner = copy
        for step in path[:-1]:
            inner = inner[step]
        inner[path[-1]] = to
        return json.dumps(with_digest({k: v for k, v in copy.items() if k != DIGEST})).encode()

    return (
        *json_traps(Path()),
        changed("scenario", "trials", to=2**31 - 1),
        changed("data", "shape", to=[2**40]),
        changed("data", "kind", to="image"),
        changed("data", "classes", to=None),
        changed("findings", 0, "scores", to=3),
        changed("findings", 0, "records", to=[[]]),
        changed("summary", 0, "floor", to={"a": {"b": {"value": "x", "low": [], "high": {}}}}),
        changed("summary", 0, "floor", to=[1]),
        changed("summary", 0, "success_rate", "records", to="x"),
        changed("verdict", "configurations", to=[{}]),
        changed("verdict", "configurations", 0, "lower", to=[]),
        changed("verdict", "gate", to=[]),
        changed("environment", to=[1]),
        changed("facts", to=[{}]),
        changed("flags", to=[{"id": 1, "reason": 2, "remedy": 3}]),
        changed("triage", to=[{"a": 1}]),
        changed("exposure", to=[{"defense": "none", "alignment": [["x"]], "agreement": "y"}]),
    )


SEARCH = policy_search.Search("mlp", "digits", candidates=1)


def make_search(folder: Path) -> None:
    policy_search._check_folder(SEARCH, folder)
    rows = [policy_search.Scored("", 0.5, 0.5), policy_search.Scored("1-2", 0.4, 0.6)]
    policy_search._write(folder, SEARCH.blocks[0], rows)


def read_search(folder: Path) -> object:
    policy_search._check_folder(SEARCH, folder)
    rows = policy_search._read(folder, SEARCH.blocks[0])
    return None if rows is None else policy_search.ranked(rows, None)


def scores_traps(folder: Path) -> Traps:
    of = policy_search._key_of_block(folder, SEARCH.blocks[0])
    wrong = ([{"policy": 1, "privacy": "x", "accuracy": []}], [{"policy": "", "privacy": 1}], {}, None, [3])
    return (*(sealed(of, rows * 2 if isinstance(rows, list) else rows) for rows in wrong), *json_traps(folder))


def make_measured(folder: Path) -> None:
    cell = dict.fromkeys(("table", "row", "column", "statistic", "device", "version", "commit", "state"), "x")
    numbers = dict.fromkeys(("reported", "value", "low", "high", "seconds"), 0.5)
    counts = dict.fromkeys(("trials", "failed", "seed", "seeds"), 1)
    (folder / "measured.json").write_text(json.dumps({"cells": [{**cell, **numbers, **counts}]}))


@cache
def piece() -> Any:
    return next(p for recipe in recipes.find().values() for p in pieces_of(recipe.tables))


def make_piece(folder: Path) -> None:
    (folder / "runs").mkdir()
    running.save(piece(), folder / "runs", running.Result((), {"device": "cpu"}, 1.0, {"a": (1.0,)}))
    os.rename(next((folder / "runs").iterdir()), folder / "piece.json")


def read_piece(folder: Path) -> object:
    os.replace(folder / "piece.json", running._path(piece(), folder / "runs"))
    return running.load(piece(), folder / "runs")


def make_state(folder: Path) -> None:
    trained(folder)


def trained(folder: Path) -> object:
    """One round of a small federation, kept in the folder, then the same again."""
    scenario = Scenario(model="mlp:hidden=2", data="breast-cancer", defenses=("dgc",), partition=Partition(kind="iid"))
    federation = Federation(rounds=1, per_round=1, evaluate=1)
    return federated_training.train_federation(scenario, federation, out=folder / "state", device="cpu")


def kept_training(folder: Path) -> object:
    samples = load("breast-cancer", "train")
    start = load_model("mlp:hidden=2", samples.spec, 0)
    return rounds.train(start, samples, Training(rounds=1, clients=1, batch_size=4), 0, kept=folder / "kept.training")


READERS: tuple[Reader, ...] = (
    Reader("recorded-description", "recorded/update-00000.json", make_recorded, read_recorded, described_traps),
    Reader("recorded-count", "recorded/left-out.json", make_recorded, read_recorded, json_traps),
    Reader("recorded-update", "recorded/update-00000.safetensors", make_recorded, read_recorded, safetensors_traps),
    Reader("recorded-private", "recorded/private-00000.safetensors", make_recorded, read_recorded, private_traps),
    Reader("scenario", "scenario.toml", make_scenario, lambda f: read_scenario(f / "scenario.toml"), scenario_traps),
    Reader("report", "one/report.json", make_run, read_report, report_traps),
    Reader("report-compared", "one/report.json", make_run, read_comparison, report_traps),
    Reader("run-truth", "one/truth.safetensors", make_run, read_store, safetensors_traps),
    Reader("run-cells", "one/cells.json", make_run, read_store, cells_traps),
    Reader("run-trials", "one/cells/first", make_run, read_cell, safetensors_traps),
    Reader("run-index", "one/index.sqlite", make_run, read_store, json_traps),
    Reader("policy-search", "search.json", make_search, read_search, json_traps),
    Reader("policy-scores", "scores/000000.json", make_search, read_search, scores_traps),
    Reader("recipe-measured", "measured.json", make_measured, measured.read, json_traps),
    Reader("recipe-run", "piece.json", make_piece, read_piece, json_traps),
    Reader("training-state", "state/state.safetensors", make_state, trained, safetensors_traps),
    Reader("training-kept", "kept.training", kept_training, kept_training, safetensors_traps),
)
