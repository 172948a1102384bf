"""Everything that the golden files use of Leakgauge: whoever moves or renames something edits this file and no other.

What is used: the public names of the package, the catalogue's names, the command line, the recorder, and one spy on
`Attack.__call__`, because a report does not hold what an attack returned before it was matched and clamped.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from leakgauge import Attack, Scenario, catalog, run_audit
from leakgauge.errors import LeakgaugeError
from leakgauge.recording.recorder import Recorder

with warnings.catch_warnings():  # typer 0.20 imports names that click 8.5 deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    from leakgauge.cli import main

__all__ = ["LeakgaugeError", "Outcome", "Row", "audit", "command", "names_of", "record_federation"]

# --- names of the first building -> names of the second -------------------------------------------------------------
# Whole words in texts, row names, flags and JSON keys, translated before they are compared: {"stage": "setup"}.
RENAMED: dict[str, str] = {
    "leakgauge reproduce": "leakgauge lab reproduce",  # in what a recipe's page says
    "reproduce ren2022fedboosting": "lab reproduce ren2022fedboosting",  # in the command lines of these files
    "recipes/ren2022fedboosting": "results/ren2022fedboosting",  # where measured figures are kept
}
# What comes or goes on purpose: shell patterns for the paths that a failing test prints, such as
# "grnn-dense / rows / grnn | mixup:*". Each wants a comment that says why. A page whose sentences change on purpose
# is made again instead (`make.py --only`), in the commit that changes them.
ADDED: tuple[str, ...] = (
    "lists / * / fields",  # `list --json` has the fields of what has some
    "* / is_decoy",  # a finding's `control` has this name now, and the golden files of attacks leave it out
    "lists / * list metrics * / out / ssim_uniform7",  # a function that nobody called is a metric to ask for
    "* / gate / defense",  # every key of a verdict is there now, null where it does not apply
    "* / configurations[[]*] / traces",
    *(f"* / configurations[[]*] / upper / {key}" for key in ("mu", "steps", "unit", "kappa", "training")),
)
DROPPED: tuple[str, ...] = ()


def in_schema_2(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """The JSON of a report as schema 2 names its keys; anything else as it is."""
    if value.get("schema") == 1 and {"told", "stage"} <= value.keys():
        named = {"told": "facts", "stage": "setup"}
        return {named.get(key, key): inner for key, inner in value.items()} | {"schema": 2}
    if "control" in value and "trial" in value:  # a finding
        return {"is_decoy" if key == "control" else key: inner for key, inner in value.items()}
    return value


@dataclass(frozen=True)
class Row:
    """One attack against one configuration: what the report says of each trial, and what the attack returned."""

    name: str
    adaptive: bool
    trials: list[dict[str, Any]]
    returned: dict[str, Tensor]  # by field, (T, ...); empty where the attack was refused


def names_of(kind: str) -> list[str]:
    """Names in the catalogue of one kind, such as `attacks`."""
    return list(catalog.find(kind))


def audit(scenario: Mapping[str, Any], undefended: bool) -> list[Row]:
    """The audit that the scenario asks for, row by row in the order of its findings."""
    with _watched() as calls:
        report, _ = run_audit(Scenario.from_mapping(scenario), undefended=undefended, device="cpu")
    plain = report.as_dict()["findings"]
    rows: dict[str, list[dict[str, Any]]] = {}
    numbered: dict[tuple[str, str], list[str]] = {}
    for finding in plain:
        variant = "adaptive" if finding["adaptive"] else "plain"
        label = finding["attack"]
        if finding["adaptive"]:
            label = _as_numbered(label, numbered, finding["defense"])
        rows.setdefault(f"{label} | {finding['defense']} | {variant}", []).append(finding)
    found = []
    for name, trials in rows.items():
        ran = sum(finding["error"] is None for finding in trials)
        found.append(Row(name, trials[0]["adaptive"], trials, _next_rows(calls, ran, name)))
    assert not calls, f"{len(calls)} calls of an attack belong to no row: mend _surface.audit"
    return found


def _as_numbered(label: str, known: dict[tuple[str, str], list[str]], defense: str) -> str:
    """The first building numbered the ways to use a defense, "dlg #2"; the second one names them: "dlg (way)"."""
    decoy = " on a decoy" if label.endswith(" on a decoy") else ""
    label = label.removesuffix(decoy)
    base = label.partition(" (")[0]
    ways = known.setdefault((base, defense), [])
    if label not in ways:
        ways.append(label)
    number = ways.index(label) + 1
    return (base if number == 1 else f"{base} #{number}") + decoy


def _next_rows(calls: list[Any], wanted: int, name: str) -> dict[str, Tensor]:
    """The results of the next calls, as many as make up `wanted` trials: rows come in the order in which they ran."""
    parts = []
    while wanted > 0:
        assert calls, f"no call of an attack is left for {name}: mend _surface.audit"
        parts.append(calls.pop(0))
        wanted -= len(parts[-1].objective)
    assert wanted == 0, f"the calls of {name} hold another number of trials than its findings: mend _surface.audit"
    fields = ("inputs", "labels", "objective", "claimed", "answers")
    given = {field: [getattr(part, field, None) for part in parts] for field in fields}
    return {f: torch.cat([t.detach().cpu() for t in v]) for f, v in given.items() if v and v[0] is not None}


@contextlib.contextmanager
def _watched() -> Iterator[list[Any]]:
    """What each attack returned, in order; attacks that run inside another one are left out."""
    calls: list[Any] = []
    original, depth = Attack.__call__, 0

    def watched(self: Attack, *arguments: Any, **named: Any) -> Any:
        nonlocal depth
        depth += 1
        try:
            result = original(self, *arguments, **named)
        finally:
            depth -= 1
        if depth == 0:
            calls.append(result)
        return result

    Attack.__call__ = watched  # type: ignore[method-assign]
    try:
        yield calls
    finally:
        Attack.__call__ = original  # type: ignore[method-assign]


@dataclass(frozen=True)
class Outcome:
    """What one command line did."""

    code: int
    out: str
    err: str


def command(folder: Path, arguments: Sequence[str]) -> Outcome:
    """Run one command line in `folder`, with no data sets but the embedded ones."""
    before, environment, importers, paths = Path.cwd(), dict(os.environ), list(sys.meta_path), list(sys.path)
    os.environ |= {"LEAKGAUGE_DATA": str(folder / "no-data"), "COLUMNS": "160", "NO_COLOR": "1"}
    out, err = io.StringIO(), io.StringIO()
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(list(arguments))
    finally:
        os.chdir(before)
        os.environ.clear()
        os.environ.update(environment)
        sys.meta_path[:], sys.path[:] = importers, paths
    return Outcome(code, out.getvalue(), err.getvalue())


def record_federation(folder: Path, model: nn.Module, clients: Mapping[str, tuple[Tensor, Tensor]], keep: bool) -> None:
    """Two rounds of the clients' gradients, recorded in this process as a training loop would."""
    recorder = Recorder(folder, keep_private=keep)
    for number in (1, 2):
        for client, (inputs, labels) in clients.items():
            model.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            private = (inputs, labels) if keep else None
            recorder.gradient(model, samples=len(labels), client=client, round=number, private=private)
