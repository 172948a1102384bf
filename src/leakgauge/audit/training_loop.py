"""Audits from inside a training loop, of an update that the loop holds.

`audit_update` is the whole audit of one update. `leak_of` is the quick look while the model trains:

    loss.backward()
    logged = leak_of(model, inputs, labels, data=DataSpec("mine", (1, 28, 28), 10, "image"))

It reads the step as one that a client would share: the model's own parameters, the gradients that are in them, and the
number of samples. Training itself is not touched: neither weights, gradients, modes nor global randomness.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from leakgauge import catalog
from leakgauge.audit.run import run_audit
from leakgauge.client.naming import plain_name
from leakgauge.errors import BadInput
from leakgauge.execution.table_cell import run_cell
from leakgauge.recording.own_update import IN_PYTHON, setup_from, setup_of
from leakgauge.recording.recorder import batchnorm_mode, trainable
from leakgauge.recording.sanity import refuse_wrong
from leakgauge.recording.triage import triage_of
from leakgauge.setup.plan import Cell
from leakgauge.setup.setup import Setup
from leakgauge.setup.victims import Victims
from leakgauge.types import (
    UNDEFENDED,
    Attack,
    AuditReport,
    Batch,
    Client,
    DataSpec,
    Pictures,
    Scenario,
    SharedUpdate,
    no_progress,
)

CHEAP = ("linear", "labels")  # without a search: milliseconds for a small network


def audit_update(
    model: nn.Module,
    update: Mapping[str, Tensor],
    inputs: Tensor,
    labels: Tensor,
    scenario: Scenario | None = None,
    *,
    out: Path | None = None,
    device: str = "auto",
) -> tuple[AuditReport, Pictures]:
    """What one client's update gives away of its batch (N, *shape), (N,); for a training loop.

    `update` maps parameter names to gradients, or to weight differences if the scenario's `local` says fedavg; `model`
    is as it was before. Of the scenario only the suite or attacks, `local`, the one declared defense, threat model,
    gate, ledger and seed count.
    """
    given = dataclasses.replace(scenario or Scenario(), model=IN_PYTHON, data=IN_PYTHON)
    setup = setup_of(model, update, inputs, labels, given, device)
    refuse_wrong(triage_of(setup))
    return run_audit(setup.scenario, out=out, undefended=not given.defenses, setup=setup, triaged=True)


@dataclass(frozen=True)
class Leak:
    """Scores by `attack/score`, and why attacks that do not apply gave none."""

    scores: dict[str, float]
    errors: dict[str, str]


def leak_of(
    model: nn.Module, inputs: Tensor, labels: Tensor, data: DataSpec, attacks: Sequence[str] = CHEAP, seed: int = 0
) -> Leak:
    """Attack the gradients that `backward()` left in `model`; inputs (N, *shape) in [0, 1], labels (N,)."""
    if tuple(inputs.shape[1:]) != tuple(data.shape):
        allowed = f"samples of shape {tuple(data.shape)}"
        raise BadInput("inputs", allowed=allowed, got=tuple(inputs.shape[1:]), do="correct data=")
    leak = Leak({}, {})
    with torch.enable_grad(), torch.random.fork_rng(devices=[]):
        setup = _setup_of_step(model, inputs, labels, data, seed)
        for spec in attacks:
            attack: Attack = catalog.build("attacks", spec)
            (finding,), _ = run_cell(setup, Cell(attack, UNDEFENDED, False, attack.name), no_progress)
            if finding.error is not None:
                leak.errors[attack.name] = finding.error
            for name, value in finding.scores.items():
                if value is not None:
                    reduced = name if name == "label_accuracy" else f"{name}_mean_per_image"
                    leak.scores[f"{attack.name}/{reduced}"] = value
    return leak


def _setup_of_step(model: nn.Module, inputs: Tensor, labels: Tensor, data: DataSpec, seed: int) -> Setup:
    """The step as one that a client would share: its gradients are the update, zero where a parameter has none."""
    parameters = trainable(model)
    if all(p.grad is None for p in parameters.values()):
        raise BadInput("model", allowed="one with gradients", got="none", do="call it after backward()")
    gradients = {n: torch.zeros_like(p) if p.grad is None else p.grad.detach().clone() for n, p in parameters.items()}
    update = SharedUpdate("gradient", {name: gradient[None] for name, gradient in gradients.items()})
    scenario = Scenario(
        model=IN_PYTHON,
        data=IN_PYTHON,
        batch_size=len(inputs),
        trials=1,
        seed=seed,
        threat_model="eavesdropper",  # no public data: a training loop has none to spare
        local=Client(batchnorm=batchnorm_mode(model)),
    )
    batch = Batch(inputs.detach()[None], labels.detach()[None])
    where = next(iter(parameters.values())).device
    inner = model  # out of its wrappers, so that its names are those of the update
    while len(names := [n for n, _ in inner.named_children()]) == 1 and plain_name(f"{names[0]}.") == "":
        inner = getattr(inner, names[0])
    sent = copy.deepcopy(inner).eval()
    sent.zero_grad(set_to_none=True)
    victims = Victims(len(inputs), batch, update)
    return setup_from(scenario, sent, victims, data, (None, None), where, checked=False)
