"""The gate between client and attacker: an update and the facts of the threat model pass, nothing else does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from leakgauge.client.partial import ALL, SEPARATOR, layers_of, only_shared, shared_names
from leakgauge.client.running_averages import shared_statistics
from leakgauge.engine.gradients import working_model
from leakgauge.errors import BadInput
from leakgauge.types import Batch, Client, DataSpec, Fact, Observation, SharedUpdate, ThreatModel


def observe(
    model: nn.Module, update: SharedUpdate, threat_model: ThreatModel, facts: Mapping[Fact, Any], layers: str = ALL
) -> Observation:
    """What an attacker of this kind sees. Facts the threat model does not name are dropped here.

    So are the tensors of other layers than `layers` (see `client/partial.py`); an update without them is fine too.
    Running averages that the client shared tell the batch's BatchNorm statistics: nobody has to reveal those.
    """
    check_update(model, update, layers)
    revealed = {fact: value for fact, value in facts.items() if fact in threat_model.facts}
    if Fact.BATCHNORM_STATISTICS not in revealed and (read := shared_statistics(model, update, facts)):
        revealed[Fact.BATCHNORM_STATISTICS] = read
    return Observation(model, only_shared(update, model, layers), threat_model, revealed)


def facts_about(
    model: nn.Module,
    batch: Batch,
    data: DataSpec,
    local: Client,
    public: Batch | None,
    wanted: frozenset[Fact] = frozenset(Fact),
) -> dict[Fact, Any]:
    """Everything that could be revealed about a batch; `observe` lets through what the threat model names.

    BatchNorm statistics take a forward pass for each trial and are left out if they are not `wanted`.
    """
    facts: dict[Fact, Any] = {
        Fact.INPUT_SPEC: data,
        Fact.NUM_SAMPLES: batch.inputs.shape[1],
        Fact.LOCAL_TRAINING: local,
        Fact.LABELS: batch.labels,
    }
    if Fact.BATCHNORM_STATISTICS in wanted:
        facts[Fact.BATCHNORM_STATISTICS] = batchnorm_statistics(model, batch.inputs, local.batchnorm)
    return facts if public is None else facts | {Fact.PUBLIC_DATA: public}


def batchnorm_statistics(model: nn.Module, inputs: Tensor, batchnorm: str = "eval") -> dict[str, tuple[Tensor, Tensor]]:
    """Mean and variance of what enters each BatchNorm layer in each trial's batch: layer -> ((T, C), (T, C)).

    `batchnorm` is the client's mode: what a deep layer sees depends on how the layers before it normalise.
    """
    worker = working_model(model, batchnorm)
    seen: dict[str, list[tuple[Tensor, Tensor]]] = {}
    hooks = []
    for name, module in worker.named_modules():
        if isinstance(module, _BatchNorm):

            def note(_: nn.Module, args: tuple[Tensor, ...], name: str = name) -> None:
                over = [d for d in range(args[0].dim()) if d != 1]
                seen.setdefault(name, []).append((args[0].mean(over), args[0].var(over, unbiased=False)))

            hooks.append(module.register_forward_pre_hook(note))
    if hooks:
        with torch.no_grad():
            for trial in inputs:  # one forward pass each; statistics must not mix trials
                worker(trial)
    return {name: (torch.stack([m for m, _ in rows]), torch.stack([v for _, v in rows])) for name, rows in seen.items()}


def _remedy(model: nn.Module, update: SharedUpdate, extra: Sequence[str]) -> str:
    """What to do about tensors that are missing or unknown, by what they look like."""
    buffers, frozen = {n for n, _ in model.named_buffers()}, {n for n, p in model.named_parameters()}
    if extra and set(extra) <= buffers:
        return "leave buffers out of a gradient; a weight difference is said with --local kind=fedavg"
    if extra and set(extra) <= frozen:
        return f"{extra[0]!r} is frozen, or the logits do not depend on it: it cannot move; leave it out"
    if not extra and update.tensors:
        layers = [layer for layer, names in layers_of(model).items() if set(names) <= update.tensors.keys()]
        if {n for layer in layers for n in layers_of(model)[layer]} == update.tensors.keys():
            return f"if only these layers were shared, say --shared-layers {SEPARATOR.join(layers)}"
        shared = SEPARATOR.join(update.tensors)
        return f"save a tensor for every parameter, or name those that were shared: --shared-layers {shared}"
    return "check that --model is the model this update belongs to"


def check_update(model: nn.Module, update: SharedUpdate, layers: str = ALL) -> None:
    """Does the update belong to this model: names, shapes, one trials axis, finite values? It must have `layers`."""
    if update.kind not in ("gradient", "weight_delta"):
        raise BadInput(
            "update kind", allowed="gradient or weight_delta", got=repr(update.kind), do="say what was shared"
        )
    expected = {n: tuple(p.shape) for n, p in model.named_parameters() if p.requires_grad}
    missing, extra = (
        sorted(set(shared_names(model, layers)) - update.tensors.keys()),
        sorted(update.tensors.keys() - expected.keys()),
    )
    if missing or extra:
        got = "; ".join([f"missing {n!r}" for n in missing[:1]] + [f"unknown {n!r}" for n in extra[:1]])
        raise BadInput(
            "update tensors",
            allowed=f"the model's {len(expected)} parameters by name",
            got=got,
            do=_remedy(model, update, extra),
        )
    trials = next((len(t) for t in update.tensors.values() if t.dim()), 1)
    if not trials:
        raise BadInput(
            "update", allowed="of at least one client", got="tensors with none", do="save it after a client trained"
        )
    for name, tensor in update.tensors.items():
        if tuple(tensor.shape) != (trials, *expected[name]):
            raise BadInput(
                f"update tensor {name!r}",
                allowed=f"of shape {(trials, *expected[name])} (trials first)",
                got=tuple(tensor.shape),
                do="check that --model is the model this update belongs to",
            )
        if not torch.isfinite(tensor).all():
            bad = int((~torch.isfinite(tensor)).sum())
            raise BadInput(
                f"update tensor {name!r}",
                allowed="finite",
                got=f"{bad} NaN or infinite entries",
                do="find where training diverged, or drop this update",
            )
