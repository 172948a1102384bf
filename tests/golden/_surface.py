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
RENAMED: dict[str, str] = {}
# What comes or goes on purpose: shell patterns for the paths that a failing test prints, such as
# "grnn-dense / rows / grnn | mixup:*". Each wants a comment that says why. A page whose sentences change on purpose
# is made again instead (`make.py --only`), in the commit that changes them.
ADDED: tuple[str, ...] = (
    "* / is_decoy",  # a finding's `control` has this name now
    "* / findings[[]*] / labels",  # null where there are samples to score them against
    "* / verdict / proven",  # null where there are samples
    "* / clients",  # names of the clients, where a recorder knows them
    "* / setup",  # the `stage` of old
)
DROPPED: tuple[str, ...] = ("* / findings[[]*] / control", "* / stage")
# Values that are others on purpose, in the same notation.
CHANGED: tuple[str, ...] = ()

# A blind audit, and `attack --update`, write the report that every audit writes: the same kind of finding, a verdict
# that says what is proven, in place of blind.json and blind.html. Objective, proofs, labels and steps are compared.
_BLIND = ("blind / command *", "recorded / command 2", "saved-update / command 3")
ADDED += tuple(
    f"{place} / {what}"
    for place in _BLIND
    for what in (
        *(
            f"out / findings[[]*] / {key}"
            for key in ("records", "note", "credible", "solved", "ranks", "film", "trace")
        ),
        *(
            f"out / {key}"
            for key in ("interrupted", "ledger", "exposure", "triage", "data", "skipped", "told", "costs")
        ),
        "out / flags",
        "out / environment / engine",
        "files / */report.*",
        "files / */summary.md",
        "files / */officer.html",
        "files / */truth.safetensors",  # it holds no sample
        "files / */reconstruction*.safetensors / claimed",
    )
)
DROPPED += tuple(f"{place} / {what}" for place in _BLIND for what in ("out / update", "files / */blind.*"))
CHANGED += tuple(
    f"{place} / {what}"
    for place in _BLIND
    for what in (
        "out / findings[[]*] / defense",  # "unknown" is "none": nothing was declared
        "out / findings[[]*] / flags*",
        "out / scenario / *",  # an attack's scenario names the update that it was played on
        "out / summary",
        "out / verdict",
        "out / flags*",
        "err",
        "others",  # finished trials, which are kept and reused
    )
)
# `recorded` is the old name of `audit --recorded DIR --all-rounds`: one report for each round in place of one for all.
# Command 4 claims a defense that the clients did not apply, which is refused as it is by `audit`.
DROPPED += tuple(f"recorded / command [45] / {what}" for what in ("out / *", "files / *"))
ADDED += tuple(f"recorded / command [45] / {what}" for what in ("out / *", "files / *"))
CHANGED += (
    "blind / command 2 / out",
    "recorded / command 3 / out",
    "recorded / command 3 / err",
    "recorded / command [45] / *",
)
# The results of the recipes lie in results/.
CHANGED += ("recipe / command 1 / files / run/README.md",)


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
    for finding in plain:
        variant = "adaptive" if finding["adaptive"] else "plain"
        rows.setdefault(f"{finding['attack']} | {finding['defense']} | {variant}", []).append(finding)
    found = []
    for name, trials in rows.items():
        ran = sum(finding["error"] is None for finding in trials)
        found.append(Row(name, trials[0]["adaptive"], trials, _next_rows(calls, ran, name)))
    assert not calls, f"{len(calls)} calls of an attack belong to no row: mend _surface.audit"
    return found


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
