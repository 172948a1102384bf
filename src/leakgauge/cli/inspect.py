"""`leakgauge inspect MODEL`: what can a client see in a received model before it trains on it?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from torch import Tensor, nn

from leakgauge.checks import Suspicion, tampered
from leakgauge.checks.inspection import judge, measure
from leakgauge.checks.suspicion import HIGH
from leakgauge.cli import options
from leakgauge.cli.console import say, show, show_json
from leakgauge.data import draw_victims, load
from leakgauge.errors import BadInput
from leakgauge.models import load_model, load_tensors
from leakgauge.reading.files import make_folder, write_whole
from leakgauge.setup.setup import pick_device
from leakgauge.types import Batch, DataSpec, Scenario

FILE = "inspection.json"
SAMPLES = 8
_CHECKPOINTS = (".pt", ".pth", ".safetensors")


def inspect(
    model: Annotated[
        str,
        typer.Argument(
            help="A checkpoint (.safetensors, .pt), or NAME[:field=value,...] or FILE.py:FACTORY with --weights.",
            show_default=False,
        ),
    ],
    weights: options.WEIGHTS = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data", help="Your own samples: NAME, FOLDER, FILE.npz or FILE.py:FACTORY; gives shapes and a probe."
        ),
    ] = None,
    samples: Annotated[
        int, typer.Option("--samples", min=0, help="Samples of --data whose gradients are looked at; 0 for none.")
    ] = SAMPLES,
    reference: Annotated[
        str | None, typer.Option("--reference", help="Checkpoint of an earlier round's model, which you trust.")
    ] = None,
    seed: options.SEED = None,
    device: options.DEVICE = "auto",
    data_root: options.DATA_ROOT = None,
    out: Annotated[Path | None, typer.Option("--out", help=f"Folder for {FILE}. Default: none.")] = None,
    as_json: options.JSON = False,
) -> int:
    """Look for signs of tampering in a received model, before training on it. Exit code 1 if there are any.

    Example: `leakgauge inspect lenet-dlg --data digits`; with what was received
    `leakgauge inspect lenet-dlg --weights received.pt --data digits --reference last-round.pt`
    """
    if Path(model).suffix in _CHECKPOINTS:
        _refuse_extras(weights, data)
        received: nn.Module | Mapping[str, Tensor] = load_tensors(model)
        spec, probe = None, None
    else:
        received, spec, probe = _with_model(model, weights, data, samples, seed or 0, device, data_root)
    known = None if reference is None else load_tensors(reference)
    measured = measure(received, spec, probe, known)
    findings = judge(measured)
    result = {
        "tampered": tampered(findings),
        "findings": [finding.as_dict() for finding in findings],
        "scores": {check: {layer: m.score for layer, m in layers.items()} for check, layers in measured.items()},
    }
    if out is not None:
        make_folder(out)
        write_whole(out / FILE, json.dumps(result, indent=2, allow_nan=False).encode())
    if as_json:
        show_json(result)
    else:
        _show(findings, result["scores"])
    if out is not None:
        say(f"written: {out / FILE}")
    return int(tampered(findings))


def _refuse_extras(weights: str | None, data: str | None) -> None:
    for flag, value in (("--weights", weights), ("--data", data)):
        if value is not None:
            raise BadInput(
                flag,
                allowed="given with a model's name",
                got=f"{value!r} beside a checkpoint alone",
                do="write 'leakgauge inspect NAME --weights CHECKPOINT --data DATA', or leave it out",
            )


def _with_model(
    model: str, weights: str | None, data: str | None, samples: int, seed: int, device: str, root: Path | None
) -> tuple[nn.Module, DataSpec, Batch | None]:
    """The model with its weights, and the probe, if the user named data of their own."""
    where = pick_device(device)
    dataset = load(data or Scenario().data, "test", root)
    built = load_model(model, dataset.spec, seed, weights).to(where)
    if data is None or samples == 0:
        return built, dataset.spec, None
    batch = draw_victims(dataset, 1, min(samples, len(dataset)), seed)
    return built, dataset.spec, Batch(batch.inputs.to(where), batch.labels.to(where))


def _show(findings: tuple[Suspicion, ...], scores: Any) -> None:
    for finding in findings:
        show(f"{finding.severity}: {finding.id} in {finding.layer}")
        show(f"  seen: {finding.evidence} (score {finding.score:.3g}, from {finding.threshold:g})")
        show(f"  do:   {finding.do}")
    if findings:
        show("")
    done = sum(bool(layers) for layers in scores.values())
    grave = sum(finding.severity == HIGH for finding in findings)
    verdict = "tampered with" if grave else "no sign of tampering"
    cautions = len(findings) - grave
    show(f"{verdict}; grave findings: {grave}, cautions: {cautions}, checks that applied: {done} of {len(scores)}")
