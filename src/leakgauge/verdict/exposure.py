"""Which records does an update expose most? An estimate before any attack, so that there is an order to look in.

The client computes it from its own samples: the cosine of each record's gradient with what is shared. A record whose
gradient dominates a batch stands near 1, one that drowns among others or in noise near 0. It ranks records; it is no
bound, and a record with a small value may still be recovered. How far the order agrees with what the strongest attack
then recovered is told beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from scipy.stats import spearmanr
from torch import Tensor, nn

from leakgauge.engine.batchnorm import uses_batch_statistics
from leakgauge.engine.gradients import client_gradients, working_model
from leakgauge.engine.losses import Loss, loss_of
from leakgauge.engine.memory import fitting
from leakgauge.metrics.criterion import gain
from leakgauge.setup.setup import Setup
from leakgauge.types import Batch, Defense, Exposure, Finding, SharedUpdate

_LARGE = 2**26  # bytes of a gradient from which one per record is too much to ask
_COPIES = 4


def alignment(setup: Setup, defenses: Sequence[Defense]) -> Tensor | None:
    """(T, N): cosine of each record's own gradient with the update; None where records have none of their own."""
    local = setup.scenario.local
    model = working_model(setup.model, local.batchnorm)
    size = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    if uses_batch_statistics(model) or size > _LARGE:
        return None
    trials, samples = setup.batch.labels.shape[:2]
    at_once = fitting(_COPIES * size, setup.batch.inputs.device)
    some = max(1, at_once // samples)
    found = []
    for begin in range(0, trials, some):
        chunk = list(range(begin, min(begin + some, trials)))
        shared = setup.update(defenses, setup.model, trials=chunk)
        columns = [
            _cosines(model, shared, setup.batch.take(chunk), range(i, min(i + at_once, samples)), loss_of(local))
            for i in range(0, samples, at_once)
        ]
        found.append(torch.cat(columns, 1))
    return torch.cat(found)


def _cosines(model: nn.Module, shared: SharedUpdate, batch: Batch, records: range, loss: Loss) -> Tensor:
    """(T, R) for some records of every trial."""
    picked = list(records)
    inputs, labels = batch.inputs[:, picked].flatten(0, 1)[:, None], batch.labels[:, picked].flatten(0, 1)[:, None]
    own = client_gradients(model, inputs, labels, loss)
    rows = torch.arange(len(batch.labels), device=inputs.device).repeat_interleave(len(picked))
    both = [(own[n].flatten(1), shared.tensors[n][rows].flatten(1)) for n in own if _fits(own[n], shared.tensors, n)]
    if not both:
        return torch.zeros(len(batch.labels), len(picked))
    dot, mine, theirs = (torch.stack(parts).sum(0) for parts in zip(*map(_products, both), strict=True))
    sign = -1.0 if shared.kind == "weight_delta" else 1.0
    return (sign * dot / (mine * theirs).sqrt().clamp_min(1e-30)).reshape(len(batch.labels), -1)


def exposure(defense: str, aligned: Tensor, scored: Sequence[Finding], metric: str) -> Exposure:
    """The estimate beside what an attack's findings say of the same records."""
    pairs = [
        (float(aligned[f.trial, i]), gain(metric, value))
        for f in scored
        for i, record in enumerate(f.records[: aligned.shape[1]])
        if (value := record.get(metric)) is not None
    ]
    table = tuple(tuple(round(float(v), 6) for v in row) for row in aligned)
    return Exposure(defense, table, _rank_correlation(pairs))


def worst_first(found: Exposure) -> list[tuple[int, int, float]]:
    """(trial, record, alignment), the most exposed first."""
    rows = [(t, i, value) for t, row in enumerate(found.alignment) for i, value in enumerate(row)]
    return sorted(rows, key=lambda row: -row[2])


def _rank_correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    estimates, reached = ({round(p[side], 6) for p in pairs} for side in (0, 1))
    if len(pairs) < 3 or len(estimates) < 2 or len(reached) < 2:
        return None  # nothing to put in order
    return float(spearmanr([p[0] for p in pairs], [p[1] for p in pairs]).statistic)


def _fits(own: Tensor, shared: Mapping[str, Tensor], name: str) -> bool:
    return name in shared and shared[name].shape[1:] == own.shape[1:]


def _products(pair: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    mine, theirs = pair[0].double(), pair[1].double()
    return (mine * theirs).sum(1), mine.square().sum(1), theirs.square().sum(1)
