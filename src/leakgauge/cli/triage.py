"""`leakgauge triage`: what an architecture and an update allow, in seconds and before any attack."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from leakgauge.cli import options
from leakgauge.cli.console import say, show, show_json, show_table
from leakgauge.client.chain import prepared
from leakgauge.client.observe import observe
from leakgauge.errors import BadInput
from leakgauge.reading.files import make_folder, write_whole
from leakgauge.recording.own_update import blind_setup
from leakgauge.recording.sanity import refuse_wrong
from leakgauge.recording.triage import first_observation
from leakgauge.recording.triage import triage as look
from leakgauge.setup.plan import parse_chain
from leakgauge.setup.setup import load_setup
from leakgauge.types import UNDEFENDED, Clue, Observation, Scenario

FILE = "triage.json"


def triage(
    model: options.MODEL = None,
    data: options.DATA = None,
    update: Annotated[
        Path | None, typer.Option("--update", help="Look at this saved update instead of a simulated client's.")
    ] = None,
    defense: Annotated[
        list[str] | None,
        typer.Option("--defense", help="NAME[:field=value,...] of the simulated client; repeat to chain."),
    ] = None,
    batch_size: options.BATCH_SIZE = None,
    local: options.LOCAL = None,
    training: options.TRAINING = None,
    shared_layers: options.SHARED_LAYERS = None,
    weights: options.WEIGHTS = None,
    precision: options.PRECISION = None,
    seed: options.SEED = None,
    device: options.DEVICE = "auto",
    data_root: options.DATA_ROOT = None,
    out: Annotated[Path | None, typer.Option("--out", help=f"Folder for {FILE}. Default: none.")] = None,
    as_json: options.JSON = False,
) -> int:
    """Say what an update allows, before any attack, and whether it is what it is claimed to be. Exit code 2 if not.

    Example: `leakgauge triage --model mlp --data digits --batch-size 8`
    """
    chain = "+".join(defense or [])
    scenario = options.changed(
        Scenario(trials=1),
        model=model,
        data=data,
        batch_size=batch_size,
        local=local,
        training=training,
        shared_layers=shared_layers,
        weights=weights,
        precision=precision,
        seed=seed,
        defenses=(chain,) if chain else None,
    )
    seen = _simulated(scenario, device, data_root) if update is None else _saved(scenario, update, device, data_root)
    clues = look(seen)
    result = {"clues": [dataclasses.asdict(clue) for clue in clues], "scenario": scenario.as_dict()}
    if out is not None:
        make_folder(out)
        write_whole(out / FILE, json.dumps(result, indent=2, allow_nan=False).encode())
        say(f"written: {out / FILE}")
    if as_json:
        show_json(result)
    else:
        show_clues(clues)
    refuse_wrong(clues)
    return 0


def show_clues(clues: Sequence[Clue]) -> None:
    """The table, what is wrong first."""
    rows = [[clue.severity, clue.what, clue.value, clue.meaning] for clue in clues]
    show_table(["", "looked at", "seen", "what it means"], rows)
    show("")


def _simulated(scenario: Scenario, device: str, data_root: Path | None) -> Observation:
    setup = load_setup(scenario, data_root, device)
    defenses = parse_chain(scenario.defenses[0] if scenario.defenses else UNDEFENDED)
    sent = prepared(setup.model, *defenses)
    facts = setup.facts(sent, setup.behind(defenses), setup.threat_model.facts)
    return observe(sent, setup.update(defenses, setup.model), setup.threat_model, facts, scenario.shared_layers)


def _saved(scenario: Scenario, path: Path, device: str, data_root: Path | None) -> Observation:
    for flag, given in (("--defense", scenario.defenses), ("--training", scenario.training.rounds)):
        if given:
            raise BadInput(
                flag, allowed="used without --update", got=repr(given), do="leave it out: the file is what it is"
            )
    setup = blind_setup(dataclasses.replace(scenario, update=str(path)), data_root, device)
    return first_observation(setup, range(setup.victims.trials))
