"""`leakgauge recorded`: what a recorder wrote from real training, and what can be read from it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from safetensors.torch import save

from leakgauge import catalog
from leakgauge.audit.recorded import Assumed, Attacked, Group, audit_group, findings, pictures
from leakgauge.cli import options
from leakgauge.cli.console import say, show, show_json, show_table
from leakgauge.cli.running import RUNS
from leakgauge.cli.triage import show_clues
from leakgauge.data import load
from leakgauge.errors import BadInput
from leakgauge.reading.files import make_folder, write_whole
from leakgauge.reading.keys import key_of
from leakgauge.recording.recorded_clients import of_round
from leakgauge.recording.recorded_folder import Recorded, left_out, read_folder, side_by_side
from leakgauge.report.pictures import pairs_png, sheet_png
from leakgauge.report.recorded import HEADS, finding_row, recorded_page
from leakgauge.setup.plan import parse_chain
from leakgauge.setup.setup import environment, pick_device
from leakgauge.types import SCHEMA, LocalTraining
from leakgauge.verdict.flags import FLAGS

DEFAULT_ATTACKS = "linear labels"  # both without a search: seconds for a hundred clients
FILE, PAGE = "recorded.json", "recorded.md"
CHEAP_ONLY = (
    "Only attacks without a search were played: what they miss, a search may find (--attacks inverting-gradients)."
)
_SHOWN = 64  # pictures on a sheet


def recorded(
    folder: Annotated[Path, typer.Argument(help="What a Recorder, a callback or a Flower app wrote.")],
    model: options.MODEL = None,
    data: options.DATA = None,
    attacks: Annotated[
        str, typer.Option("--attacks", help="Comma-free list, as for audit: 'linear dlg:steps=50'.")
    ] = DEFAULT_ATTACKS,
    defense: Annotated[
        str | None,
        typer.Option("--defense", help="What the clients do, a+b chains: attackers who know it are played too."),
    ] = None,
    round: Annotated[int | None, typer.Option("--round", help="Only updates of this round. Default: all.")] = None,
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", min=1, help="Private samples behind one update, if not as recorded.")
    ] = None,
    local: Annotated[
        str | None,
        typer.Option("--local", help="The clients' training, if not as recorded: kind=fedavg,lr=0.1,epochs=2 ..."),
    ] = None,
    weights: options.WEIGHTS = None,
    seed: options.SEED = None,
    device: options.DEVICE = "auto",
    data_root: options.DATA_ROOT = None,
    out: options.OUT = None,
    as_json: options.JSON = False,
) -> int:
    """List recorded updates; with --model and --data, attack them: every client of a round side by side.

    Example: `leakgauge recorded recorded --model mlp --data digits`
    """
    entries, missing = read_folder(folder), left_out(folder)
    if round is not None:
        entries = tuple(of_round(entries, round))
    if missing:
        say(f"leakgauge: the recorder left out {missing:,} later updates: its limits were reached")
    if model is None or data is None:
        if model is not None or data is not None:
            got = "--model alone" if data is None else "--data alone"
            raise BadInput("--model and --data", allowed="given together", got=got, do="add the other one")
        _list(folder, entries, missing, as_json)
        return 0
    where, number = pick_device(device), seed or 0
    said = None if local is None else LocalTraining.from_text(local)
    known = () if defense is None else parse_chain(defense)
    assumed = Assumed(model, load(data, "train", data_root), weights, batch_size, said, known, number)
    played = [catalog.build("attacks", spec) for spec in attacks.split()]
    groups = [audit_group(group, assumed, played, where) for group in side_by_side(entries)]
    named = {"model": model, "data": data, "attacks": attacks, "defense": defense, "seed": number}
    target = out or RUNS / key_of(recorded=str(folder.resolve()), **named)[:10]
    make_folder(target)
    word = defense or "unknown"
    result: dict[str, Any] = {
        "schema": SCHEMA,
        "recorded": str(folder),
        "left_out": missing,
        **named,
        "defense": word,
        "groups": [_plain(group, word) for group in groups],
        "environment": environment(where),
    }
    files = [_write_pictures(target, number, group) for number, group in enumerate(groups, 1)]
    write_whole(target / PAGE, recorded_page(result, files).encode(), private=True)
    write_whole(target / FILE, json.dumps(result, indent=1, allow_nan=False).encode(), private=True)
    code = 0 if any(group.entries for group in groups) else 2
    if code:
        say("leakgauge: no update could be read; what stands against each is in the result")
    if as_json:
        show_json(result)
        say(f"written: {target}")
        return code
    for group, plain in zip(groups, result["groups"], strict=True):
        _show(group, plain["findings"])
    show(f"Written: {target / PAGE}")
    return code


def _list(folder: Path, entries: Sequence[Recorded], missing: int, as_json: bool) -> None:
    told = [_described(entry) for entry in entries]
    if as_json:
        show_json({"schema": SCHEMA, "recorded": str(folder), "left_out": missing, "updates": told})
        return
    heads = ["name", "round", "client", "kind", "samples", "lr", "steps", "private"]
    show_table(heads, [[_word(row[head]) for head in heads] for row in told])
    show(f"Attack them: leakgauge recorded {folder} --model MODEL --data DATA")


def _described(entry: Recorded) -> dict[str, Any]:
    own = dataclasses.asdict(entry.origin) | {"steps": entry.origin.steps}
    return {"name": entry.name, "kind": entry.kind, **own, "private": entry.private is not None}


def _word(value: object) -> str:
    return "?" if value is None else "yes" if value is True else "no" if value is False else str(value)


def _plain(group: Group, defense: str) -> dict[str, Any]:
    return {
        "updates": [_described(entry) for entry in group.entries],
        "unreadable": [{"name": name, "error": error} for name, error in group.unreadable],
        "clues": [dataclasses.asdict(clue) for clue in group.clues],
        "findings": findings(group, defense),
    }


def _write_pictures(target: Path, number: int, group: Group) -> list[str]:
    """What each attack claims, as tensors and as a sheet; the names of the sheets."""
    sheets = []
    for attacked in group.attacked:
        if attacked.result is None:
            continue
        claimed = {"inputs": attacked.result.inputs, "labels": attacked.result.labels}
        kept = {n: t.detach().cpu().contiguous() for n, t in claimed.items() if t is not None}
        write_whole(target / f"group{number}-{attacked.label}.safetensors", save(kept), private=True)
        sheet = _sheet(group, attacked)
        if sheet is not None:
            sheets.append(f"group{number}-{attacked.label}.png")
            write_whole(target / sheets[-1], sheet, private=True)
    return sheets


def _sheet(group: Group, attacked: Attacked) -> bytes | None:
    shown = pictures(group, attacked)
    if shown is None:
        return None
    if group.truth is None or attacked.scores is None:
        return sheet_png(shown[:_SHOWN])
    trials, size = group.truth.labels.shape
    truth = group.truth.inputs.flatten(0, 1)
    scores = [attacked.scores.record(t, i) for t in range(trials) for i in range(size)]
    return pairs_png(truth[:_SHOWN], shown[:_SHOWN], scores[:_SHOWN])


def _show(group: Group, found: Sequence[dict[str, Any]]) -> None:
    rounds = sorted({entry.origin.round for entry in group.entries})
    show(f"{len(group.entries)} updates of round {', '.join(map(str, rounds))}" if group.entries else "No update read")
    for name, error in group.unreadable:
        show(f"  not read: {name}: {error}")
    if not group.entries:
        return
    show_clues(group.clues)
    show_table(list(HEADS), [finding_row(finding) for finding in found])
    if group.truth is None:
        flag = FLAGS["no-ground-truth"]
        show(f"flag {flag.id}: {flag.reason}; {flag.remedy}")
    if all(attacked.label.removesuffix("-informed") in DEFAULT_ATTACKS.split() for attacked in group.attacked):
        show(CHEAP_ONLY)
    show("")
