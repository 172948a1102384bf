"""An audit of saved or recorded updates without the samples behind them: what an update tells by itself.

Label counts, what an attack proved right without the truth, and how well each reconstruction explains the update.
Nothing is scored, so there is no verdict and no gate.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from leakgauge import catalog
from leakgauge.audit.applicability import spared, why_not
from leakgauge.audit.budget import Budget, budget_of
from leakgauge.cli.console import say, show, show_json, show_table, watching
from leakgauge.cli.replay import NO_TRUTH, as_document, findings, folder_of, keep, look_at, seeds_of, show_no_truth
from leakgauge.cli.triage import show_clues
from leakgauge.errors import BadInput, LeakgaugeError
from leakgauge.reading.files import make_folder, write_whole
from leakgauge.recording.own_update import is_recording, refuse_what_a_file_fixes
from leakgauge.recording.recorded_clients import filled_in, names_of
from leakgauge.recording.sanity import refuse_wrong
from leakgauge.recording.triage import triage
from leakgauge.report.blind_page import label_words, to_blind_page
from leakgauge.report.subject import counted
from leakgauge.setup.plan import Cell, check_assumed, knowledge, parse_chain, way_of
from leakgauge.setup.suites import SECONDS, attacks_of
from leakgauge.types import UNDEFENDED, Attack, Fact, Known, Observation, Reconstruction, Scenario

FILE, PAGE = "blind.json", "blind.html"


def blind_audit(scenario: Scenario, *, out: Path | None, as_json: bool, data_root: Path | None, device: str) -> int:
    """Every attack of the scenario that can work, one after another; stops once the whole batch is proven."""
    assert scenario.update is not None
    refuse_what_a_file_fixes(scenario)
    _refuse_what_needs_the_truth(scenario)
    update_file, clients = Path(scenario.update), None
    if is_recording(update_file):
        scenario = filled_in(scenario, update_file)
        clients = names_of(update_file, scenario)
    seen, data = look_at(scenario, update_file, data_root, device)
    clues = triage(seen, ranks=False)
    refuse_wrong(clues)
    folder = folder_of(scenario, update_file, out)
    found: list[dict[str, Any]] = []
    skipped: list[dict[str, str]] = []
    drawn: dict[str, Reconstruction] = {}
    clients = clients or [str(t) for t in range(seen.trials)]
    cells = [cell for cell in _cells(scenario) if not spared(cell.attack, scenario, seen)]
    budget = _budget(scenario, seen)
    with watching() as watch:
        for number, cell in enumerate(cells):
            watch(number, len(cells), cell.name, 0.0)
            reason = why_not(cell.attack, seen)
            if not reason and _all_proven(found, seen):
                reason = "settled: every record carries a proof of its own"
            if reason:
                skipped.append({"attack": cell.label, "why": reason})
                continue
            attack = cell.attack if budget is None else budget.allotted(cell, cells[number + 1 :]).attack
            result = _run(attack, scenario, seen, cell.known)
            if isinstance(result, str):
                skipped.append({"attack": cell.label, "why": result})
                continue
            called = f"{re.sub(r'[^a-z0-9]+', '-', cell.label).strip('-')}{'-adaptive' * cell.adaptive}"
            keep(result, data, folder, f"reconstruction-{called}")
            if data.kind == "image" and result.inputs is not None:
                drawn[called] = result
            found += findings(attack, result, scenario, seen, cell.adaptive)
    document = as_document(scenario, update_file, found, seen) | {
        "skipped": skipped,
        "triage": [dataclasses.asdict(clue) for clue in clues],
        "flags": [NO_TRUTH],
        "clients": clients,
    }
    make_folder(folder)
    write_whole(folder / PAGE, to_blind_page(document, scenario, clients, drawn).encode(), private=True)
    write_whole(folder / FILE, json.dumps(document, indent=2, allow_nan=False).encode(), private=True)
    if as_json:
        show_json(document)
        say(f"written: {folder / FILE}")
        return 0
    show_clues(clues)
    _show(found, skipped, seen, clients)
    show(f"Report: {folder / PAGE}")
    show(f"Reconstructions: {folder}")
    return 0


def _cells(scenario: Scenario) -> list[Cell]:
    """Each attack, plain and as one who knows the declared defence; controls need the truth and are left out."""
    chain = scenario.defenses[0] if scenario.defenses else UNDEFENDED
    cells = []
    named: list[Attack] = [catalog.build("attacks", spec) for spec in attacks_of(scenario)]
    attacks = [a for a in named if not (a.baseline or a.decoy)]  # what they draw cannot be told from what they know
    check_assumed(scenario, attacks)
    for attack in attacks:
        if scenario.variants != "adaptive" or not scenario.defenses:
            cells.append(Cell(attack, chain, False, attack.name))
        if scenario.variants != "plain":
            for known in knowledge(scenario, attack, parse_chain(chain)):
                cells.append(Cell(attack, chain, True, attack.name + way_of(known), known))
    return cells


def _budget(scenario: Scenario, seen: Observation) -> Budget | None:
    if scenario.attacks:
        return None
    return budget_of(SECONDS[scenario.suite], seen, seeds_of(scenario, seen))


def _run(attack: Attack, scenario: Scenario, seen: Observation, known: Sequence[Known]) -> Reconstruction | str:
    """What it made of the update, or why it could not."""
    try:
        return attack(seen, seeds_of(scenario, seen), known=known)
    except BadInput:
        raise
    except LeakgaugeError as error:
        return str(error)


def _all_proven(found: list[dict[str, Any]], seen: Observation) -> bool:
    samples: int = seen.fact(Fact.NUM_SAMPLES)
    proven = {f["trial"] for f in found if f["certified"] == samples}
    return len(proven) == seen.trials


def _refuse_what_needs_the_truth(scenario: Scenario) -> None:
    for name, given in (("gate", scenario.gate), ("ledger", scenario.ledger), ("metrics", scenario.metrics)):
        if given:
            raise BadInput(
                name,
                allowed="used where the batch behind the update is known",
                got=repr(given),
                do="give it as --data FILE.py:FACTORY or FILE.npz, or leave this out",
            )


def _show(
    found: list[dict[str, Any]], skipped: list[dict[str, str]], seen: Observation, clients: Sequence[str]
) -> None:
    samples = seen.fact(Fact.NUM_SAMPLES)
    rows = []
    for f in found:
        proven = "-" if f["certified"] is None else f"{f['certified']} of {samples}"
        objective = "-" if f["objective"] is None else f"{f['objective']:.3g}"
        labels = label_words(f["labels"])
        knows = "adaptive" if f["adaptive"] else "plain"
        rows.append([f["attack"], knows, clients[f["trial"]], proven, labels, objective, f"{f['seconds']:.1f} s"])
    show_table(["attack", "attacker", "client", "proven right", "labels", "own objective", "time"], rows)
    for s in skipped:
        show(f"{s['attack']}: not run: {s['why']}")
    show("")
    records, of_labels = (max((f[kind] or 0 for f in found), default=0) for kind in ("certified", "labels_proven"))
    show(
        f"Proven without the private batch: up to {records} of {counted('record', samples)} of a client, and up to "
        f"{of_labels} of {counted('label', samples)}. Nothing else was scored."
    )
    show_no_truth()
