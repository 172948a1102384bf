"""`leakgauge audit --recorded DIR` beyond one round: what is in the folder, and an audit of every round of it.

`leakgauge recorded` is its old name; it says the new one and does the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from leakgauge.cli import options
from leakgauge.cli.console import say, show, show_json, show_table
from leakgauge.cli.running import RUNS, audited, code_of, show_report
from leakgauge.errors import BadInput
from leakgauge.reading.files import make_folder, write_whole
from leakgauge.reading.keys import key_of
from leakgauge.recording.own_update import setup_for
from leakgauge.recording.recorded_clients import NothingReadable, groups_of, of_round
from leakgauge.recording.recorded_folder import Recorded, left_out, read_folder
from leakgauge.report.rounds import AuditedRound, rounds_page
from leakgauge.types import SCHEMA, Scenario

CHEAP = ("linear", "labels")  # attacks without a search: seconds for a hundred clients
PAGE = "rounds.md"
CHEAP_ONLY = (
    "Only attacks without a search were played: what they miss, a search may find (--attacks inverting-gradients)."
)


def list_recorded(folder: Path, number: int | None, as_json: bool) -> int:
    """What a recorder wrote, update by update."""
    entries, missing = _entries(folder, number)
    told = [_described(entry) for entry in entries]
    if as_json:
        show_json({"schema": SCHEMA, "recorded": str(folder), "left_out": missing, "updates": told})
        return 0
    heads = ["name", "round", "client", "kind", "samples", "lr", "steps", "private"]
    show_table(heads, [[_word(row[head]) for head in heads] for row in told])
    show(f"Attack them: leakgauge audit --recorded {folder} --all-rounds --model MODEL --data DATA")
    return 0


def audit_rounds(scenario: Scenario, number: int | None, *, out: Path | None, as_json: bool, **how: Any) -> int:
    """One audit for each round, or for that `number`; clients of a round who did not do the same are audited apart."""
    folder = Path(str(scenario.update))
    entries, missing = _entries(folder, number)
    target = out or RUNS / key_of(scenario=scenario.as_dict(), rounds=str(folder.resolve()))[:10]
    done: list[AuditedRound] = []
    refusals: list[BadInput] = []
    code = 0
    for name, clients in groups_of(entries):
        try:
            told = _audited(scenario, name, clients, target, as_json, how)
        except BadInput as error:  # of this round, if others can be audited
            refusals.append(error)
            told = AuditedRound(name, refused=str(error))
        done.append(told)
        if told.report is not None and (code := max(code, code_of(told.report))) == 130:
            say("leakgauge: interrupted; the same command goes on from there")
            break
    if refusals and not any(one.report for one in done):
        raise refusals[0]
    make_folder(target)
    write_whole(target / PAGE, rounds_page(str(folder), missing, done).encode(), private=True)
    for one in done:
        if one.refused:
            say(f"leakgauge: {one.name} is not audited: {one.refused}")
    if all(one.report is None for one in done):
        code = 2
        say("leakgauge: no update could be read; what stands against each is in the result")
    if as_json:
        plain = {"schema": SCHEMA, "recorded": str(folder), "left_out": missing, "rounds": [r.as_dict() for r in done]}
        show_json(plain)
        say(f"written: {target}")
    else:
        if {spec.partition(":")[0] for spec in scenario.attacks} <= set(CHEAP) and scenario.attacks:
            show(CHEAP_ONLY)
        show(f"Written: {target / PAGE}")
    return code


def _audited(
    scenario: Scenario, name: str, clients: Sequence[Recorded], target: Path, as_json: bool, how: dict[str, Any]
) -> AuditedRound:
    """The audit of one group of clients, told as it comes."""
    asked = dataclasses.replace(scenario, round=clients[0].origin.round)
    try:
        setup = setup_for(asked, how["data_root"], how["device"], clients=clients)
    except NothingReadable as error:
        told = AuditedRound(name, error.unreadable)
    else:
        report, files = audited(
            setup.scenario, folder=target / name, undefended=False, triaged=True, setup=setup, **how
        )
        told = AuditedRound(name, setup.victims.unreadable, report)
        if not as_json:
            show(f"{name}: {len(setup.victims.names)} updates")
            show_report(report, files)
    for update, why in () if as_json else told.unreadable:
        show(f"  not read: {update}: {why}")
    return told


def _entries(folder: Path, number: int | None) -> tuple[tuple[Recorded, ...], int]:
    """What is in the folder, and how many updates the recorder left out."""
    entries, missing = read_folder(folder), left_out(folder)
    if missing:
        say(f"leakgauge: the recorder left out {missing:,} later updates: its limits were reached")
    return entries if number is None else tuple(of_round(entries, number)), missing


def _described(entry: Recorded) -> dict[str, Any]:
    own = dataclasses.asdict(entry.origin) | {"steps": entry.origin.steps}
    return {"name": entry.name, "kind": entry.kind, **own, "private": entry.private is not None}


def _word(value: object) -> str:
    return "?" if value is None else "yes" if value is True else "no" if value is False else str(value)


def recorded(
    folder: Annotated[Path, typer.Argument(help="What a Recorder, a callback or a Flower app wrote.")],
    model: options.MODEL = None,
    data: options.DATA = None,
    attacks: Annotated[
        str, typer.Option("--attacks", help="Comma-free list, as for audit: 'linear dlg:steps=50'.")
    ] = " ".join(CHEAP),
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
    """Old name of `leakgauge audit --recorded DIR --all-rounds`, and of `--list` where no model is named.

    Example: `leakgauge recorded recorded --model mlp --data digits`
    """
    new = "--list" if model is None else "--all-rounds"
    if (model is None) != (data is None):
        got = "--model alone" if data is None else "--data alone"
        raise BadInput("--model and --data", allowed="given together", got=got, do="add the other one")
    said = f"leakgauge: 'recorded {folder}' is now 'audit --recorded {folder} {new}'"
    if model is None:
        code = list_recorded(folder, round, as_json)
        say(said)
        return code
    kept = all(entry.private is not None for entry in read_folder(folder))
    scenario = options.changed(
        Scenario(update=str(folder), blind=not kept),  # --data named the kind of samples here, never the samples
        model=model,
        data=data,
        attacks=tuple(attacks.split()),
        defenses=None if defense is None else (defense,),
        batch_size=batch_size,
        local=local,
        weights=weights,
        seed=seed,
    )
    code = audit_rounds(scenario, round, out=out, as_json=as_json, data_root=data_root, device=device)
    say(said)
    return code
