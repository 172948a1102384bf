"""Which records does an update expose most? An estimate before any attack, so that there is an order to look in.

The client computes it from its own samples: the cosine of each record's gradient with what is shared. A record whose
gradient dominates a batch stands near 1, one that drowns among others or in noise near 0. It ranks records; it is no
bound, and a record with a small value may still be recovered. Beside it stands how far the order agrees with what the
strongest attack then recovered.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from scipy.stats import spearmanr
from torch import Tensor, nn

from leakgauge.engine.batchnorm import uses_batch_statistics
from leakgauge.engine.gradients import client_gradients, working_model
from leakgauge.engine.losses import Loss, loss_of
from leakgauge.engine.memory import fitting
from leakgauge.errors import LeakgaugeError
from leakgauge.metrics.criterion import criterion_of, gain
from leakgauge.setup.plan import parse_chain
from leakgauge.setup.setup import Setup
from leakgauge.types import Batch, Defense, Exposure, Finding, SharedUpdate, Summary
from leakgauge.verdict.roles import attack_rows, cell_of, is_floor

_LARGE = 2**26  # bytes of a gradient from which one per record is too much to ask
_COPIES = 4


def exposures(setup: Setup, rows: Sequence[Summary], findings: Sequence[Finding]) -> tuple[Exposure, ...]:
    """For each attacked configuration the order of its records, beside what its strongest attack recovered."""
    metric = criterion_of(setup.data).metric

    def mean(row: Summary) -> float:
        found = row.metrics.get(f"{metric}_mean_per_image")
        return gain(metric, None if found is None else found.value)

    attacks, found = attack_rows(rows, findings), []
    for defense in dict.fromkeys(r.defense for r in rows if not is_floor(r.attack)):
        try:
            aligned = alignment(setup, parse_chain(defense))
        except LeakgaugeError:
            continue  # the defense does not fit the model; its row says so
        if aligned is None:
            continue
        best = max((r for r in attacks if r.defense == defense and r.success_rate.records), key=mean, default=None)
        scored = [] if best is None else [f for f in findings if cell_of(f) == cell_of(best)]
        found.append(exposure(defense, aligned, scored, metric))
    return tuple(found)


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
        shared, batch = setup.update(defenses, setup.model, trials=chunk), setup.batch.take(chunk)
        pieces = torch.split(torch.arange(samples), at_once)
        found.append(torch.cat([_cosines(model, shared, batch, piece, loss_of(local)) for piece in pieces], 1))
    return torch.cat(found)


def _cosines(model: nn.Module, shared: SharedUpdate, batch: Batch, picked: Tensor, loss: Loss) -> Tensor:
    """(T, R) for the records `picked` (R,) of every trial."""
    inputs, labels = batch.inputs[:, picked].flatten(0, 1)[:, None], batch.labels[:, picked].flatten(0, 1)[:, None]
    own = client_gradients(model, inputs, labels, loss)
    rows = torch.arange(len(batch.labels), device=inputs.device).repeat_interleave(len(picked))
    dot, mine, theirs = torch.zeros(3, len(rows), dtype=torch.float64, device=inputs.device)
    for name, gradient in own.items():
        update = shared.tensors.get(name)
        if update is not None and update.shape[1:] == gradient.shape[1:]:
            one, other = gradient.flatten(1).double(), update[rows].flatten(1).double()
            dot, mine, theirs = dot + (one * other).sum(1), mine + one.square().sum(1), theirs + other.square().sum(1)
    sign = -1.0 if shared.kind == "weight_delta" else 1.0
    cosines: Tensor = sign * dot / (mine * theirs).sqrt().clamp_min(1e-30)
    return cosines.reshape(len(batch.labels), -1)


def exposure(defense: str, aligned: Tensor, scored: Sequence[Finding], metric: str) -> Exposure:
    """The estimate beside what an attack's findings say of the same records."""
    pairs = [
        (float(aligned[f.trial, i]), gain(metric, value))
        for f in scored
        for i, record in enumerate(f.records[: aligned.shape[1]])
        if (value := record.get(metric)) is not None
    ]
    table, agreement = tuple(tuple(round(float(v), 6) for v in row) for row in aligned), None
    sides = list(zip(*pairs, strict=True))
    if len(pairs) >= 3 and all(len({round(value, 6) for value in side}) > 1 for side in sides):  # else no order
        agreement = float(spearmanr(*sides).statistic)
    return Exposure(defense, table, agreement)


def worst_first(found: Exposure) -> list[tuple[int, int, float]]:
    """(trial, record, alignment), the most exposed first."""
    rows = [(t, i, value) for t, row in enumerate(found.alignment) for i, value in enumerate(row)]
    return sorted(rows, key=lambda row: -row[2])
