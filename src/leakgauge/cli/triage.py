"""`leakgauge triage`: what an architecture and an update allow, in seconds and before any attack."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from leakgauge.cli import options
from leakgauge.cli.console import say, show, show_json, show_table
from leakgauge.data import load, public_batch
from leakgauge.engine.precision import dtype_of, set_precision
from leakgauge.errors import BadInput
from leakgauge.files import make_folder, write_whole
from leakgauge.fl.chain import prepared
from leakgauge.fl.observe import facts_about, observe
from leakgauge.fl.recorded import read_update
from leakgauge.models import load_model
from leakgauge.plan import parse_chain
from leakgauge.stage import PUBLIC_SAMPLES, pick_device, set_stage, to_device
from leakgauge.triage import triage as look
from leakgauge.types import UNDEFENDED, Clue, Fact, Observation, Scenario, SharedUpdate, threat_model
from leakgauge.types.triage import WRONG

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
        Scenario(trials=1), model=model, data=data, batch_size=batch_size, local=local, training=training,
        shared_layers=shared_layers, weights=weights, precision=precision, seed=seed,
        defenses=(chain,) if chain else None,
    )  # fmt: skip
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


def refuse_wrong(clues: Sequence[Clue]) -> None:
    """An update that is not what was claimed is bad input: every attack would read it wrongly."""
    for clue in clues:
        if clue.severity == WRONG:
            raise BadInput("update", allowed="what --local and --batch-size claim", got=clue.value, do=clue.meaning)


def _simulated(scenario: Scenario, device: str, data_root: Path | None) -> Observation:
    stage = set_stage(scenario, data_root, device)
    defenses = parse_chain(scenario.defenses[0] if scenario.defenses else UNDEFENDED)
    sent = prepared(stage.model, *defenses)
    told = stage.threat_model
    facts = facts_about(sent, stage.behind(defenses), stage.data, scenario.local, stage.public, told.facts)
    return observe(sent, stage.update(defenses, stage.model), told, facts, scenario.shared_layers)


def _saved(scenario: Scenario, path: Path, device: str, data_root: Path | None) -> Observation:
    for flag, given in (("--defense", scenario.defenses), ("--training", scenario.training.rounds)):
        if given:
            raise BadInput(
                flag, allowed="used without --update", got=repr(given), do="leave it out: the file is what it is"
            )
    where, dtype = pick_device(device), dtype_of(scenario.precision)
    set_precision(scenario.precision)
    public = load(scenario.data, "train", data_root)
    model = load_model(scenario.model, public.spec, scenario.seed, scenario.weights)
    kind = "gradient" if scenario.local.kind == "fedsgd" else "weight_delta"
    read = read_update(path, kind, model, scenario.shared_layers)
    update = SharedUpdate(kind, {name: tensor.to(where, dtype) for name, tensor in read.tensors.items()})
    facts: dict[Fact, Any] = {
        Fact.INPUT_SPEC: public.spec,
        Fact.NUM_SAMPLES: scenario.batch_size,
        Fact.LOCAL_TRAINING: scenario.local,
        Fact.PUBLIC_DATA: to_device(public_batch(public, PUBLIC_SAMPLES, scenario.seed), where, dtype),
    }
    return observe(model.to(where, dtype), update, threat_model(scenario.threat_model), facts, scenario.shared_layers)
