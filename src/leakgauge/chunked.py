"""One attack on any number of trials: as many at once as memory allows, chunk after chunk."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from leakgauge.engine.memory import chunks
from leakgauge.types import Attack, Fact, Observation, Progress, Reconstruction


def reconstruct(attack: Attack, observation: Observation, seeds: Sequence[int], progress: Progress) -> Reconstruction:
    """The attack on as many trials at once as memory allows, chunk after chunk."""
    parameters = sum(p.numel() for p in observation.model.parameters())
    sample = 0
    if observation.knows(Fact.NUM_SAMPLES) and observation.knows(Fact.INPUT_SPEC):
        sample = observation.fact(Fact.NUM_SAMPLES) * torch.Size(observation.fact(Fact.INPUT_SPEC).shape).numel()
    # A trial holds a dozen copies of its gradient in the double backward pass, and L-BFGS 200 copies of its inputs.
    each = 4 * (12 * parameters + 250 * sample)
    device = next(iter(observation.update.tensors.values())).device
    parts = []
    for rows in chunks(len(seeds), each, device):
        base, share = rows[0] / len(seeds), len(rows) / len(seeds)
        chunk = observation.take(rows) if len(rows) < len(seeds) else observation
        parts.append(attack(chunk, [seeds[t] for t in rows], partial(_within, progress, base, share)))
    return parts[0] if len(parts) == 1 else _joined(parts)


def _within(progress: Progress, base: float, share: float, done: float) -> None:
    progress(base + share * done)


def _joined(parts: Sequence[Reconstruction]) -> Reconstruction:
    """Reconstructions of consecutive chunks as one."""

    def cat(name: str) -> Tensor | None:
        tensors = [getattr(p, name) for p in parts]
        return None if any(t is None for t in tensors) else torch.cat(tensors)

    longest = max((p.trace.shape[1] for p in parts if p.trace is not None), default=0)
    traces = [_padded(p.trace, longest) for p in parts if p.trace is not None]
    return Reconstruction(
        inputs=cat("inputs"),
        labels=cat("labels"),
        objective=torch.cat([p.objective for p in parts]),
        steps=torch.cat([p.steps for p in parts]),
        evaluations=torch.cat([p.evaluations for p in parts]),
        seconds=sum(p.seconds for p in parts),
        trace=torch.cat(traces) if len(traces) == len(parts) else None,
    )


def _padded(trace: Tensor, length: int) -> Tensor:
    return nn.functional.pad(trace, (0, length - trace.shape[1]), value=torch.nan)
