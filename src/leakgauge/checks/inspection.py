"""All checks on one received model."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from torch import Tensor, nn

import leakgauge.checks as folder
from leakgauge.checks._received import receive
from leakgauge.checks.suspicion import HIGH, Check, Measured, Suspicion
from leakgauge.checks.thresholds import Thresholds
from leakgauge.types import Batch, DataSpec

Source = nn.Module | Mapping[str, Tensor]
DEFAULT = Thresholds()


def inspect_model(
    model_or_tensors: Source,
    data: DataSpec | None = None,
    samples: Batch | None = None,
    reference: Source | None = None,
    thresholds: Thresholds = DEFAULT,
) -> tuple[Suspicion, ...]:
    """What a client should know before it trains on a received model, the gravest first.

    Give the model or the tensors of its checkpoint by name. With `data` the layers are found by running it, with
    `samples`, the client's own as one batch (T = 1), their gradients are looked at too, with `reference`, the model of
    an earlier round, the distance to that. Nothing is trained and nothing is changed.
    """
    return judge(measure(model_or_tensors, data, samples, reference), thresholds)


def scores(
    model_or_tensors: Source,
    data: DataSpec | None = None,
    samples: Batch | None = None,
    reference: Source | None = None,
) -> Mapping[str, Mapping[str, float]]:
    """Every check's score for every layer it can judge: check id -> layer -> score, also where nothing is wrong."""
    measured = measure(model_or_tensors, data, samples, reference)
    return {check: {layer: m.score for layer, m in layers.items()} for check, layers in measured.items()}


def measure(
    model_or_tensors: Source,
    data: DataSpec | None = None,
    samples: Batch | None = None,
    reference: Source | None = None,
) -> Mapping[str, Mapping[str, Measured]]:
    """Scores with their evidence, before any threshold."""
    received = receive(model_or_tensors, data, samples, reference)
    return {name: check.measure(received) for name, check in checks().items()}


def judge(measured: Mapping[str, Mapping[str, Measured]], thresholds: Thresholds = DEFAULT) -> tuple[Suspicion, ...]:
    """The scores that reach their thresholds. Where a check needs all layers, the smallest score must."""
    found = []
    for name, layers in measured.items():
        check = checks()[name]
        limit = float(getattr(thresholds, check.field))
        reached = {layer: m for layer, m in layers.items() if m.score >= limit}
        if check.everywhere and len(reached) < len(layers):
            continue
        for layer, m in reached.items():
            suspicion = Suspicion(name, layer, m.evidence, check.severity, check.do, m.score, limit)
            if check.severe and m.score >= getattr(thresholds, check.severe):
                suspicion = replace(suspicion, severity=HIGH, threshold=getattr(thresholds, check.severe))
            found.append(suspicion)
    return tuple(sorted(found, key=lambda s: s.severity != HIGH))


def tampered(suspicions: Sequence[Suspicion]) -> bool:
    """Is any of them grave?"""
    return any(suspicion.severity == HIGH for suspicion in suspicions)


@cache
def checks() -> Mapping[str, Check]:
    """Every check of this folder's modules by its id; a new file is enough."""
    modules = [importlib.import_module(f"{folder.__name__}.{m.name}") for m in pkgutil.iter_modules(folder.__path__)]
    found = {thing.id: thing for module in modules for thing in vars(module).values() if isinstance(thing, Check)}
    return dict(sorted(found.items()))
