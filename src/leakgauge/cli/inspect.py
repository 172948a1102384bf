"""`leakgauge inspect MODEL`: what can a client see in a received model before it trains on it?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from torch import Tensor, nn

from leakgauge.checks import Suspicion, tampered
from leakgauge.checks.inspection import judge, measure
from leakgauge.checks.suspicion import HIGH
from leakgauge.cli.console import deliver, show
from leakgauge.cli.options import Common, flag, flags_from
from leakgauge.data import draw_victims, load
from leakgauge.errors import BadInput
from leakgauge.models import load_model, load_tensors
from leakgauge.setup.setup import pick_device
from leakgauge.types import Batch, DataSpec, Scenario

FILE = "inspection.json"
_CHECKPOINTS = (".pt", ".pth", ".safetensors")
_MODEL = "A checkpoint (.safetensors, .pt), or NAME[:field=value,...] or FILE.py:FACTORY with --weights."


@dataclass(frozen=True, kw_only=True)
class InspectFlags(Common):
    """The options of `leakgauge inspect`."""

    model: Annotated[str, typer.Argument(help=_MODEL, show_default=False)]
    weights: str | None = flag("Checkpoint of the model (.safetensors, or .pt with tensors only).")
    data: str | None = flag("Your own samples: NAME, FOLDER, FILE.npz or FILE.py:FACTORY; gives shapes and a probe.")
    samples: int = flag("Samples of --data whose gradients are looked at; 0 for none.", default=8, min=0)
    reference: str | None = flag("Checkpoint of an earlier round's model, which you trust.")
    out: Path | None = flag(f"Folder for {FILE}. Default: none.")


@flags_from(InspectFlags)
def inspect(given: InspectFlags) -> int:
    """Look for signs of tampering in a received model, before training on it. Exit code 1 if there are any.

    Example: `leakgauge inspect lenet-dlg --data digits`; with what was received
    `leakgauge inspect lenet-dlg --weights received.pt --data digits --reference last-round.pt`
    """
    if Path(given.model).suffix in _CHECKPOINTS:
        _refuse_extras(given)
        received: nn.Module | Mapping[str, Tensor] = load_tensors(given.model)
        spec, probe = None, None
    else:
        received, spec, probe = _with_model(given)
    known = None if given.reference is None else load_tensors(given.reference)
    measured = measure(received, spec, probe, known)
    findings = judge(measured)
    scores = {check: {layer: m.score for layer, m in layers.items()} for check, layers in measured.items()}
    result = {"tampered": tampered(findings), "findings": [f.as_dict() for f in findings], "scores": scores}
    deliver(result, given.as_json, lambda: _show(findings, scores), given.out and given.out / FILE)
    return int(tampered(findings))


def _refuse_extras(given: InspectFlags) -> None:
    do = "write 'leakgauge inspect NAME --weights CHECKPOINT --data DATA', or leave it out"
    for name, value in (("--weights", given.weights), ("--data", given.data)):
        if value is not None:
            got = f"{value!r} beside a checkpoint alone"
            raise BadInput(name, allowed="given with a model's name", got=got, do=do)


def _with_model(given: InspectFlags) -> tuple[nn.Module, DataSpec, Batch | None]:
    """The model with its weights, and the probe, if the user named data of their own."""
    where, seed = pick_device(given.device), given.seed or 0
    dataset = load(given.data or Scenario().data, "test", given.data_root)
    built = load_model(given.model, dataset.spec, seed, given.weights).to(where)
    if given.data is None or given.samples == 0:
        return built, dataset.spec, None
    batch = draw_victims(dataset, 1, min(given.samples, len(dataset)), seed)
    return built, dataset.spec, Batch(batch.inputs.to(where), batch.labels.to(where))


def _show(findings: tuple[Suspicion, ...], scores: Mapping[str, Any]) -> None:
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
