"""Attack an update that the user saved. There is no truth to score against: pictures, labels and own objective only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from leakgauge.cli.console import say, show, show_json, watching
from leakgauge.cli.running import RUNS
from leakgauge.errors import BadInput
from leakgauge.reading.files import make_folder, write_whole
from leakgauge.reading.keys import content_of, key_of
from leakgauge.recording.own_update import is_recording, saved_observation
from leakgauge.recording.recorded_clients import filled_in
from leakgauge.recording.sanity import sanity
from leakgauge.report.pictures import sheet_png
from leakgauge.setup.plan import check_assumed, knowledge
from leakgauge.setup.setup import environment, initial_state
from leakgauge.types import SCHEMA, Attack, DataSpec, Known, Observation, Reconstruction, Scenario, threat_model
from leakgauge.types.triage import WRONG
from leakgauge.verdict.flags import FLAGS

NO_TRUTH = "no-ground-truth"


def replay(
    attack: Attack,
    scenario: Scenario,
    update_file: Path,
    *,
    out: Path | None,
    as_json: bool,
    data_root: Path | None,
    device: str,
) -> int:
    """Run `attack` on the update in `update_file`; writes `reconstruction.safetensors` and, for images, a sheet."""
    if is_recording(update_file):
        scenario = filled_in(scenario, update_file)
    known = _known(attack, scenario)
    seen, data = look_at(scenario, update_file, data_root, device)
    with watching() as watch:
        name = f"{attack.name} | {update_file.name}"
        watch(0, 1, name, 0.0)
        for clue in sanity(seen):
            if clue.severity == WRONG:
                say(f"leakgauge: {clue.what}: {clue.value}: {clue.meaning}")
        result = attack(seen, seeds_of(scenario, seen), lambda share: watch(0, 1, name, share), known)
    folder = folder_of(scenario, update_file, out)
    keep(result, data, folder, "reconstruction")
    found = findings(attack, result, scenario, seen, bool(known))
    if as_json:
        show_json(as_document(scenario, update_file, found, seen))
        say(f"reconstruction: {folder}")
        return 0
    for finding in found:
        show(f"trial {finding['trial']}: labels {finding['labels']}, own objective {finding['objective']}")
    show_no_truth()
    show(f"Reconstruction: {folder}")
    return 0


def _known(attack: Attack, scenario: Scenario) -> tuple[Known, ...]:
    """The defenses that are assumed behind the update; one file is attacked once, so in one way."""
    if not scenario.assume:
        return ()
    check_assumed(scenario, [attack])
    ways = knowledge(scenario, attack, ())
    if len(ways) != 1:
        named = ", ".join(repr(known.way) for way in ways for known in way)
        raise BadInput(
            "--assume",
            allowed=f"with one of these ways, as NAME@WAY: {named}" if ways else f"something that helps {attack.name}",
            got=scenario.assume,
            do="choose one" if ways else "leave it out",
        )
    return ways[0]


def look_at(scenario: Scenario, update_file: Path, data_root: Path | None, device: str) -> tuple[Observation, DataSpec]:
    """What the attacker sees, after refusing settings that a file cannot have."""
    if scenario.training.rounds:
        raise BadInput(
            "--training",
            allowed="used without --update: a saved update belongs to the model its client had",
            got=f"rounds={scenario.training.rounds}",
            do="give that model's parameters with --weights",
        )
    if threat_model(scenario.threat_model).oracles:
        raise BadInput(
            "--threat-model",
            allowed="one without +labels and +batchnorm: a saved update comes without these facts",
            got=repr(scenario.threat_model),
            do="leave the oracle out",
        )
    return saved_observation(scenario, update_file, data_root, device)


def seeds_of(scenario: Scenario, seen: Observation) -> list[int]:
    """One per client in the file."""
    return [scenario.seed + trial for trial in range(seen.trials)]


def folder_of(scenario: Scenario, update_file: Path, out: Path | None) -> Path:
    return out or RUNS / key_of(scenario=scenario.as_dict(), update=content_of(str(update_file)))[:10]


def keep(result: Reconstruction, data: DataSpec, folder: Path, name: str) -> None:
    """What was recovered, for its owner only; of several answers all, since nobody can say which is closest."""
    make_folder(folder)
    tensors = {name: getattr(result, name) for name in ("inputs", "labels", "claimed", "answers")}
    kept = {n: t.detach().cpu().contiguous() for n, t in tensors.items() if t is not None}
    write_whole(folder / f"{name}.safetensors", save(kept), private=True)
    if data.kind == "image" and "inputs" in kept:
        rows = kept["answers"].flatten(0, 2) if "answers" in kept else kept["inputs"].flatten(0, 1)
        rows = rows[kept["claimed"].flatten()] if "claimed" in kept and "answers" not in kept else rows
        if len(rows):
            sheet = sheet_png(rows[:64].nan_to_num(0.5).clamp(0, 1))
            write_whole(folder / f"{name}.png", sheet, private=True)


def findings(
    attack: Attack, result: Reconstruction, scenario: Scenario, seen: Observation, adaptive: bool = False
) -> list[dict[str, Any]]:
    """As an audit's, without scores."""
    certified = None if result.certified is None else result.certified.tolist()
    labels = None if result.labels_proven is None else result.labels_proven.tolist()
    return [
        {
            "attack": attack.name,
            "defense": "+".join(scenario.defenses) or "unknown",
            "adaptive": adaptive,
            "trial": t,
            "seed": seed,
            "scores": {},
            "labels": result.labels_of(t),
            "objective": float(result.objective[t]) if torch.isfinite(result.objective[t]) else None,
            "certified": None if certified is None else certified[t],
            "labels_proven": None if labels is None else labels[t],
            "steps": int(result.steps[t]),
            "evaluations": int(result.evaluations[t]),
            "seconds": result.seconds / seen.trials,
            "flags": [NO_TRUTH],
            "error": None,
            "spec": attack.spec,
        }
        for t, seed in enumerate(seeds_of(scenario, seen))
    ]


def as_document(
    scenario: Scenario, update_file: Path, found: list[dict[str, Any]], seen: Observation
) -> dict[str, Any]:
    where = next(iter(seen.update.tensors.values())).device
    measured = environment(where) | {"model state": initial_state(scenario)}
    return {
        "schema": SCHEMA,
        "scenario": scenario.as_dict() | {"trials": seen.trials},
        "update": str(update_file),
        "findings": found,
        "summary": [],
        "verdict": None,
        "environment": measured,
    }


def show_no_truth() -> None:
    show(f"flag {NO_TRUTH}: {FLAGS[NO_TRUTH].reason}; {FLAGS[NO_TRUTH].remedy}")
