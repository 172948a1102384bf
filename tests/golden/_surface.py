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

import _normal
import torch
from torch import Tensor, nn

from leakgauge import Attack, Scenario, catalog, run_audit
from leakgauge.errors import LeakgaugeError
from leakgauge.recording.recorder import Recorder
from leakgauge.types.report import AuditReport

with warnings.catch_warnings():  # typer 0.20 imports names that click 8.5 deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    from leakgauge.cli import main

__all__ = ["LeakgaugeError", "Outcome", "Row", "audit", "command", "names_of", "record_federation"]

# --- names of the first building -> names of the second -------------------------------------------------------------
# Whole words in texts, row names, flags and JSON keys, translated before they are compared: {"stage": "setup"}.
NEW_CLUES = ("client", "optimiser")  # ids of what the triage says of the client's training since
RENAMED: dict[str, str] = {
    "which does not tell them apart": "which does not separate them",
    "defence": "defense",
    "defences": "defenses",
    "Defence": "Defense",
    "Defences": "Defenses",
    "leakgauge reproduce": "leakgauge lab reproduce",  # in what a recipe's page says
    "recipes/ren2022fedboosting": "results/ren2022fedboosting",  # where measured figures are kept
    "metrics = [] variants =": 'metrics = [] assume = "" variants =',  # the settings at the end of a page
    r"inverting-gradients \#2": "inverting-gradients #2",  # a way's name is not escaped in Markdown
    # A page lists the attacks that were tried: a way has a name of its own now, also the first.
    "inverting-gradients, inverting-gradients #2.": "inverting-gradients, inverting-gradients, inverting-gradients #2.",
    "settled by linear: every record was recovered": "not needed: linear recovered every record",
    "believed to be": "assumed to be",  # in the ledger, as are the next ones
    "not told": "not given",
    "are not told": "are not told",  # in a recipe's text, which stays
    "| told |": "| given |",
    "labels: told": "labels: given",
    "told: not changed": "given: not changed",
    "told, then none": "given, then none",
    "then told:": "then given:",
    "Told, besides the model and the update": "Given besides the model and the update",  # in reports, as are the next
    "Not told": "Not given",
    "What the attacker was told besides": "What the attacker was given besides",
    "it cannot be told whether any was rebuilt": "it is not clear whether any was rebuilt",
    "was rebuilt cannot be told": "was rebuilt could not be determined",
    "too few other samples to tell whether by chance": "too few other samples to exclude chance",
    "attackers who know of it were played as well": "attackers who know of it were tried as well",
    "a scenario whose data is at hand": "a scenario whose data is available",
    "Only attacks without a search were played": "Only attacks without a search were run",
    "before it starts:": "note:",  # in what commands say, as are the next ones
    "the update gives the property away": "the update reveals the property",
    "attacked by a fellow client": "attacked by another client",
    "that tell most about the input": "that say most about the input",
    "to tell the two apart": "to compare the two",
    "6 of 131 cells": "6 of 150 cells",  # the recipe has the cells of `learned-proportions`, merged since
}
# The first building numbered the ways to use a defense, the second one names them: what is said now -> as then.
WAYS = {" (joint)": "", " (behind the lock)": " #2"}
# Attacks that the first building left uninformed without a word, though the second one informs them: defenses as
# shell patterns. These rows are new, and such a defense is no longer in `not_informed`, in which none may come.
INFORMED_NOW: dict[str, tuple[str, ...]] = {
    "gradinversion": ("ats:*", "batchnorm-only", "key-lock:*", "secure-aggregation:*", "sensitivity:*"),
    "grnn": ("ats:*", "mixup:alpha=1", "secure-aggregation:*", "sensitivity:*"),
    # They knew of clipping and of `mixing` only.
    **dict.fromkeys(
        ("ggl", "gias"),
        (
            "ats:*",
            "batchnorm-only",
            "dgc:*",
            "dropout:*",
            "key-lock:*",
            "local-steps:*",
            "low-rank:*",
            "mixup:alpha=1",
            "precode:*",
            "prune:*",
            "quantize:*",
            "random-mask:*",
            "secure-aggregation:*",
            "sensitivity:*",
            "sign*",
            "sketch:*",
            "soteria:*",
            "mixup:alpha=1+gaussian:std=0.01",
        ),
    ),
}
_NOW = tuple((attack, defense) for attack, defenses in INFORMED_NOW.items() for defense in defenses)
# Chains of which the attack now knows a member that it did not know: case -> {chain: what it knew of it}. It gives
# other numbers when it is told all; told that much (`assume`), it must give the numbers of then.
_CLIP, _CLIPPED = "clip:norm=1+gaussian:std=0.01+prune:share=0.5", "clip:norm=1+gaussian:std=0.01"
KNOWN_THEN: dict[str, dict[str, str]] = {
    "gradinversion-dense": {"key-lock:length=8+sketch:size=0.25": "sketch:size=0.25"},
    "grnn-dense": {"mixup:alpha=1+gaussian:std=0.01": "gaussian:std=0.01"},
    "ggl-alone": {_CLIP: _CLIPPED},
    "ggl-local": {_CLIP: _CLIPPED},
    "gias-alone": {_CLIP: _CLIPPED},
    "gias-local": {_CLIP: _CLIPPED},
}
# What comes or goes on purpose: shell patterns for the paths that a failing test prints, such as
# "grnn-dense / rows / grnn | mixup:*"; for a line of a page, its path and its words. Each wants a comment that says
# why. A page whose sentences change on purpose is made again instead (`make.py --only`), in the commit that does it.
# Words of the triage and the ledger on the client's training.
_OF_THE_CLIENT = (
    "client's training",
    "entries are even to",
    "fits sgd, as far",
    "optimiser",
    "SGD step",
    "the average gradient of the steps follows",
    "the gradient follows exactly",
)
NEW_FACTS = ("optimizer", "momentum", "epochs", "order")  # that the ledger changes since
ADDED: tuple[str, ...] = (
    *(f"{attack}-* / rows / {attack}* | {defense} | adaptive" for attack, defense in _NOW),
    "lists / * / fields",  # `list --json` has the fields of what has some
    *(f"* / {where} / *{said}*" for where in ("files / *", "out") for said in _OF_THE_CLIENT),
    "* / data / parts",  # a sample may have several parts, and a target may be more than a label
    "* / data / target",
    "* / data / target_shape",
    "lists / command 7 / out / cells",  # the metric of samples with parts
    "lists / command 7 / out / ssim_uniform7",  # a function that nobody called is a metric to ask for
    "lists / command 3 / out / learned-proportions",  # an aggregator that was merged after these files were made
    "recipe / command 1 / files / run/README.md / | learned?proportions*",  # the same in the recipe's tables
    "recipe / command 1 / out / left_for_want_of_time",  # `lab reproduce --time-budget` was merged since, too
    '* / files / *.md / assume = ""',  # a key of the scenario
    "settings / command 1 / files / scenario.toml / # assume = *",  # the same in the commented template
    "settings / command 1 / files / scenario.toml / # optimizer = *",
    "settings / command 1 / files / scenario.toml / # momentum = *",
    "settings / command 1 / files / scenario.toml / # dampening = *",
    "settings / command 1 / files / scenario.toml / # nesterov = *",
    "settings / command 1 / files / scenario.toml / # weight_decay = *",
    "settings / command 1 / files / scenario.toml / # beta1 = *",
    "settings / command 1 / files / scenario.toml / # beta2 = *",
    "settings / command 1 / files / scenario.toml / # alpha = *",
    "settings / command 1 / files / scenario.toml / # eps = *",
    "settings / command 1 / files / scenario.toml / # schedule = *",
    "settings / command 1 / files / scenario.toml / # decay_every = *",
    "settings / command 1 / files / scenario.toml / # decay_by = *",
    "settings / command 1 / files / scenario.toml / # order = *",
    "settings / command 1 / files / scenario.toml / # drop_last = *",
    "settings / command 1 / files / scenario.toml / # accumulate = *",
    "settings / command 1 / files / scenario.toml / # clip = *",
    "settings / command 1 / files / scenario.toml / # proximal = *",
    "settings / command 1 / files / scenario.toml / # control = *",
    "settings / command 1 / files / scenario.toml / # precision = *",
    "settings / command 1 / files / scenario.toml / # shared_as = *",
    "settings / command 1 / files / scenario.toml / # trained = *",
    "settings / command 1 / files / scenario.toml / # label_smoothing = *",
    "settings / command 1 / files / scenario.toml / # class_weights = *",
    "settings / command 1 / files / scenario.toml / # fit = *",
)
DROPPED: tuple[str, ...] = tuple(f"{attack}-* / not_informed / {defense}" for attack, defense in _NOW)
# Values, and lines by their number then, that may be other ones.
CHANGED: tuple[str, ...] = (
    "recipe / command 1 / files / run/README.md, line 20",  # one more sentence each, on `learned-proportions`
    "recipe / command 1 / files / run/README.md, line 45",
    "ways / command 1 / files / run/report.html, line 19[78]",  # a legend names the first way beside the plain attack
    "settings / command 1 / files / scenario.toml, line *",  # further losses
    # Records of tables stand in a page as tables, with what is right marked.
    "gate / command [123] / files / */report.html*",
    "recorded / command 1 / files / run/report.html*",
    "saved-update / command [12] / files / */report.html*",
    # The ledger's rows on the client's training.
    "local-training / command 1 / err, line 1[37]",
    "local-training / command 1 / files / run/report.html, line 388",
    "local-training / command 1 / files / run/report.html, line 405",
    "local-training / command 1 / files / run/report.md, line 6[39]",
    "gate / command 1 / out, line 2[01]",  # lines are grouped by an error in the last digit of float64
    "* / files / */pairs.png",  # one function draws both sheets now, and leaves less room for names
    "* / files / */attacks.png",
)

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
            for key in ("interrupted", "ledger", "exposure", "triage", "data", "skipped", "facts", "costs")
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
ADDED += tuple(f"{place} / out / {key}" for place in _BLIND for key in ("findings[[]*] / is_decoy", "setup", "clients"))
CHANGED += tuple(f"{place} / out / schema" for place in _BLIND)
CHANGED += (
    "recorded / command 1 / * / clients",  # their names stand in the report now
    "recorded / command 1 / out / clients",
    "lists / command 5 / out / convnet9 / paper",  # a defense is named in its own file alone
)
CHANGED += tuple(f"local-training / command 1 / * / ledger[[]*] / {key}" for key in ("audit", "instead"))  # "given"
DROPPED += ("property / command 1 / * / scenario / assume",)  # a scenario of its own, which assumes nothing


def in_schema_2(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """A report of schema 1 as this version reads and writes it, other documents with the scenario's new key."""
    if value.get("schema") == 1 and {"told", "stage"} <= value.keys():
        report = AuditReport.from_dict({key: _timed(inner) for key, inner in value.items() if key != "digest"})
        written = _normal.document(report.as_dict(), Path("<folder>"))
        return written | {key: inner for key, inner in value.items() if key == "digest"}
    if isinstance(scenario := value.get("scenario"), Mapping):
        return {**value, "scenario": {"assume": "", **scenario}}
    return value


def _timed(value: Any) -> Any:
    """The same with a number where a time was blotted out."""
    if isinstance(value, Mapping):
        return {key: _timed(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_timed(inner) for inner in value]
    return 0.0 if value == "<time>" else value


def as_numbered(value: Any) -> Any:
    """What a command says now with the ways numbered, as the first building did."""
    if isinstance(value, str):
        for way, number in WAYS.items():
            value = value.replace(way, number)
        return value
    if isinstance(value, Mapping):
        return {as_numbered(key): as_numbered(inner) for key, inner in value.items()}
    return [as_numbered(inner) for inner in value] if isinstance(value, list) else value


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
