"""Attack an update that the user saved. There is no truth to score against: pictures, labels and own objective only."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from leakgauge.cli.console import say, show, show_json, watching
from leakgauge.cli.running import RUNS
from leakgauge.data import load, public_batch
from leakgauge.engine.precision import dtype_of, set_precision
from leakgauge.errors import BadInput
from leakgauge.files import make_folder, write_whole
from leakgauge.fl.observe import observe
from leakgauge.fl.recorded import read_update
from leakgauge.flags import FLAGS
from leakgauge.models import load_model
from leakgauge.report.pictures import sheet_png
from leakgauge.sanity import sanity
from leakgauge.stage import PUBLIC_SAMPLES, environment, initial_state, pick_device, to_device
from leakgauge.store import content_of, key_of
from leakgauge.types import SCHEMA, Attack, Fact, Scenario, SharedUpdate, threat_model
from leakgauge.types.triage import WRONG


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
    if scenario.training.rounds:
        raise BadInput(
            "--training",
            allowed="used without --update: a saved update belongs to the model its client had",
            got=f"rounds={scenario.training.rounds}",
            do="give that model's parameters with --weights",
        )
    where, dtype = pick_device(device), dtype_of(scenario.precision)
    set_precision(scenario.precision)
    public = load(scenario.data, "train", data_root)
    model = load_model(scenario.model, public.spec, scenario.seed, scenario.weights)
    kind = "gradient" if scenario.local.kind == "fedsgd" else "weight_delta"
    read = read_update(update_file, kind, model, scenario.shared_layers)
    update = SharedUpdate(kind, {n: t.to(where, dtype) for n, t in read.tensors.items()})
    scenario = dataclasses.replace(scenario, trials=update.trials)
    told = threat_model(scenario.threat_model)
    if told.oracles:
        raise BadInput(
            "--threat-model",
            allowed="one without +labels and +batchnorm: a saved update comes without these facts",
            got=repr(scenario.threat_model),
            do="leave the oracle out",
        )
    facts: dict[Fact, Any] = {
        Fact.INPUT_SPEC: public.spec,
        Fact.NUM_SAMPLES: scenario.batch_size,
        Fact.LOCAL_TRAINING: scenario.local,
        Fact.PUBLIC_DATA: to_device(public_batch(public, PUBLIC_SAMPLES, scenario.seed), where, dtype),
    }
    seeds = scenario.seeds
    with watching() as watch:
        name = f"{attack.name} | {update_file.name}"
        watch(0, 1, name, 0.0)
        seen = observe(model.to(where, dtype), update, told, facts, scenario.shared_layers)
        for clue in sanity(seen):
            if clue.severity == WRONG:
                say(f"leakgauge: {clue.what}: {clue.value}: {clue.meaning}")
        result = attack(seen, seeds, lambda share: watch(0, 1, name, share))
    folder = out or RUNS / key_of(scenario=scenario.as_dict(), update=content_of(str(update_file)))[:10]
    make_folder(folder)
    tensors = {"inputs": result.inputs, "labels": result.labels}
    kept = {n: t.detach().cpu().contiguous() for n, t in tensors.items() if t is not None}
    write_whole(folder / "reconstruction.safetensors", save(kept), private=True)
    if public.spec.kind == "image" and "inputs" in kept:
        write_whole(
            folder / "reconstruction.png",
            sheet_png(kept["inputs"].flatten(0, 1)[:64].nan_to_num(0.5).clamp(0, 1)),
            private=True,
        )
    measured = environment(where) | {"model state": initial_state(scenario)}
    flags = ["no-ground-truth"]
    findings: list[dict[str, Any]] = [
        {
            "attack": attack.name, "defense": "unknown", "adaptive": False, "trial": t, "seed": seed, "scores": {},
            "labels": kept["labels"][t].tolist() if "labels" in kept else None,
            "objective": float(result.objective[t]) if torch.isfinite(result.objective[t]) else None,
            "steps": int(result.steps[t]), "evaluations": int(result.evaluations[t]),
            "seconds": result.seconds / len(seeds), "flags": flags, "error": None, "spec": attack.spec,
        }
        for t, seed in enumerate(seeds)
    ]  # fmt: skip
    if as_json:
        show_json({"schema": SCHEMA, "scenario": scenario.as_dict(), "update": str(update_file), "findings": findings,
                   "summary": [], "verdict": None, "environment": measured})  # fmt: skip
        say(f"reconstruction: {folder}")
        return 0
    for finding in findings:
        show(f"trial {finding['trial']}: labels {finding['labels']}, own objective {finding['objective']}")
    for flag in flags:
        show(f"flag {flag}: {FLAGS[flag].reason}; {FLAGS[flag].remedy}")
    show(f"Reconstruction: {folder}")
    return 0
