"""What BatchNorm's running averages say of the batch, where a client shares them beside its weights.

One step of training moves an average r to (1 - m) r + m s, where s is the batch's own statistic and m the layer's
momentum. So s is read off exactly after one step; after several it is the average over the steps, later ones more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from leakgauge.client.fedavg import local_steps
from leakgauge.engine.gradients import working_model
from leakgauge.types import Client, Fact, SharedUpdate

Statistics = dict[str, tuple[Tensor, Tensor]]  # layer -> mean and variance, (T, C) each


def shared_statistics(model: nn.Module, update: SharedUpdate, facts: Mapping[Fact, Any]) -> Statistics:
    """Of every BatchNorm layer, mean and variance of what entered it; empty where the averages were not shared."""
    local: Client | None = facts.get(Fact.LOCAL_TRAINING)
    if local is None or local.batchnorm != "train" or update.kind != "weight_delta":
        return {}
    layers = {n: m for n, m in model.named_modules() if isinstance(m, _BatchNorm) and m.running_mean is not None}
    if not layers or not all(
        f"{n}.{what}" in update.buffers for n in layers for what in ("running_mean", "running_var")
    ):
        return {}
    samples: int = facts[Fact.NUM_SAMPLES]
    steps, counts = local_steps(samples, local), _values(model, facts, min(local.batch_size or samples, samples))
    found = {}
    for name, layer in layers.items():
        kept = _kept(layer, steps)
        if kept == 1:
            return {}  # averages that do not move say nothing
        mean, variance = (
            (update.buffers[f"{name}.{what}"] - kept * getattr(layer, what)) / (1 - kept)
            for what in ("running_mean", "running_var")
        )
        found[name] = (mean, (variance * (counts[name] - 1) / counts[name]).clamp_min(0))  # averages are of unbiased
    return found


def _kept(layer: _BatchNorm, steps: int) -> float:
    """The share of the average before training in the one after it."""
    if layer.momentum is not None:
        return float((1 - layer.momentum) ** steps)
    before = int(layer.num_batches_tracked) if layer.num_batches_tracked is not None else 0
    return before / (before + steps)


def _values(model: nn.Module, facts: Mapping[Fact, Any], samples: int) -> dict[str, int]:
    """How many values of a channel each layer sees in one step."""
    counts: dict[str, int] = {}
    worker = working_model(model, "eval")
    for name, module in worker.named_modules():
        if isinstance(module, _BatchNorm):

            def note(_: nn.Module, args: tuple[Tensor, ...], name: str = name) -> None:
                counts[name] = samples * args[0].numel() // args[0].shape[1]

            module.register_forward_pre_hook(note)
    like = next(worker.parameters())
    with torch.no_grad():
        worker(torch.zeros(1, *facts[Fact.INPUT_SPEC].shape).to(like))
    return counts
