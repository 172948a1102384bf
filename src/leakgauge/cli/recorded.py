"""`leakgauge audit --recorded DIR` beyond one round: what is in the folder, and an audit of every round of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from leakgauge.cli.console import say, show, show_json, show_table
from leakgauge.cli.options import Run
from leakgauge.cli.running import RUNS, audited, code_of, show_report
from leakgauge.errors import BadInput
from leakgauge.reading.files import make_folder, write_whole
from leakgauge.reading.keys import key_of
from leakgauge.recording.own_update import setup_for
from leakgauge.recording.recorded_clients import NothingReadable, groups_of, of_round
from leakgauge.recording.recorded_folder import Recorded, left_out, read_folder
from leakgauge.report.markdown import AuditedRound, rounds_page
from leakgauge.types import SCHEMA, Scenario

CHEAP = ("linear", "labels")  # attacks without a search: seconds for a hundred clients
CHEAP_ONLY = (
    "Only attacks without a search were run: what they miss, a search may find (--attacks inverting-gradients)."
)
_COLUMNS = ("name", "round", "client", "kind", "samples", "lr", "steps", "private")


def list_recorded(folder: Path, number: int | None, as_json: bool) -> int:
    """What a recorder wrote, update by update."""
    entries, missing = _entries(folder, number)
    updates = [_described(entry) for entry in entries]
    if as_json:
        show_json({"schema": SCHEMA, "recorded": str(folder), "left_out": missing, "updates": updates})
        return 0
    show_table(_COLUMNS, [[_word(update[name]) for name in _COLUMNS] for update in updates])
    show(f"Attack them: leakgauge audit --recorded {folder} --all-rounds --model MODEL --data DATA")
    return 0


def audit_rounds(scenario: Scenario, number: int | None, given: Run) -> int:
    """One audit for each round, or for that `number`; clients of a round who did not do the same are audited apart."""
    folder = Path(str(scenario.update))
    entries, missing = _entries(folder, number)
    target = given.out or RUNS / key_of(scenario=scenario.as_dict(), rounds=str(folder.resolve()))[:10]
    done: list[AuditedRound] = []
    refusals: list[BadInput] = []
    code = 0
    for name, clients in groups_of(entries):
        try:
            done.append(_audited(scenario, name, clients, target, given))
        except BadInput as error:  # of this round, if others can be audited
            refusals.append(error)
            done.append(AuditedRound(name, refused=str(error)))
        if (report := done[-1].report) is not None and (code := max(code, code_of(report))) == 130:
            say("leakgauge: interrupted; give the same command again to resume")
            break
    read = any(one.report for one in done)
    if refusals and not read:
        raise refusals[0]
    make_folder(target)
    page = target / "rounds.md"
    write_whole(page, rounds_page(str(folder), missing, done).encode(), private=True)
    for one in done:
        if one.refused:
            say(f"leakgauge: {one.name} is not audited: {one.refused}")
    if not read:
        code = 2
        say("leakgauge: no update could be read; the result says why for each")
    if given.as_json:
        rounds = [one.as_dict() for one in done]
        show_json({"schema": SCHEMA, "recorded": str(folder), "left_out": missing, "rounds": rounds})
        say(f"written: {target}")
        return code
    if scenario.attacks and {spec.partition(":")[0] for spec in scenario.attacks} <= set(CHEAP):
        show(CHEAP_ONLY)
    show(f"Written: {page}")
    return code


def _audited(scenario: Scenario, name: str, clients: Sequence[Recorded], target: Path, given: Run) -> AuditedRound:
    """The audit of one group of clients, shown when it is done."""
    one = dataclasses.replace(scenario, round=clients[0].origin.round)
    try:
        setup = setup_for(one, given.data_root, given.device, clients=clients)
    except NothingReadable as error:
        done = AuditedRound(name, error.unreadable)
    else:
        report, files = audited(setup.scenario, given, target / name, undefended=False, triaged=True, setup=setup)
        done = AuditedRound(name, setup.victims.unreadable, report)
        if not given.as_json:
            show(f"{name}: {len(setup.victims.names)} updates")
            show_report(report, files)
    for update, why in () if given.as_json else done.unreadable:
        show(f"  not read: {update}: {why}")
    return done


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
