"""Several answers of one attack: the worst case for the client counts, record by record.

Without the truth nobody can say which answer is best, so an auditor counts the one that comes closest, as the verdict
does with several attacks. The comparison with other samples (`leakgauge.verdict.closeness`) takes the closest answer
for each of them too, or the choice alone would look like a leak.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge import catalog
from leakgauge.metrics.assignment import assign, reorder
from leakgauge.metrics.criterion import criterion_of
from leakgauge.metrics.psnr import PSNR
from leakgauge.metrics.scoring import claims_of
from leakgauge.types import Batch, DataSpec, Reconstruction

_MET = 1e3  # dB by which an answer that meets the criterion stands before all that do not


@dataclass(frozen=True)
class WorstCase:
    """The reconstruction whose inputs are the closest answers, in the truth's order, and every answer beside it."""

    result: Reconstruction
    matched: Tensor  # (T, A, N, *shape): clamped, each answer in the truth's order


def worst_case(truth: Batch, recon: Reconstruction, data: DataSpec) -> WorstCase | None:
    """None for an attack with one answer."""
    if recon.answers is None:
        return None
    every, scores, rule = [], [], criterion_of(data)
    for answer in recon.answers.unbind(1):
        free, claims, _ = claims_of(dataclasses.replace(recon, inputs=answer, claimed=None), truth.inputs)
        tidy = free.clamp(0, 1)
        order = assign(truth.inputs, tidy, claims)
        matched = reorder(tidy, order)
        every.append(matched)
        met = rule.hits(catalog.get("metrics", rule.metric)(truth.inputs, matched, data))
        closeness = PSNR(truth.inputs, matched, data) + _MET * met
        scores.append(closeness.where(reorder(claims, order), -torch.inf))
    answers = torch.stack(every, 1)
    best = torch.stack(scores, 1).argmax(1)  # (T, N)
    size = [1] * len(data.shape)
    chosen = answers.gather(1, best.view(len(best), 1, -1, *size).expand(-1, 1, -1, *data.shape)).squeeze(1)
    notes = _notes(best, recon.answer_names, recon.notes)
    return WorstCase(dataclasses.replace(recon, inputs=chosen, notes=notes, answers=None, answer_names=()), answers)


def with_answers(recovered: Tensor, answers: Tensor) -> Tensor:
    """(T, N, *shape) and (T, A, N, *shape) -> (T, (1 + A) N, *shape): what is kept of a trial, its records first."""
    return torch.cat((recovered, answers.flatten(1, 2).to(recovered)), 1)


def answers_in(kept: Tensor, records: int) -> Tensor:
    """What is kept of T trials with N records each -> (T, A, N, *shape), A = 1 for an attack with one answer."""
    answers = kept.reshape(len(kept), -1, records, *kept.shape[2:])
    return answers if answers.shape[1] == 1 else answers[:, 1:]


def _notes(best: Tensor, names: Sequence[str], notes: tuple[str, ...] | None) -> tuple[str, ...]:
    found = []
    for row, note in zip(best.tolist(), notes or [""] * len(best), strict=True):
        counts = ", ".join(f"{names[a]} ({row.count(a)})" for a in sorted(set(row)))
        found.append(f"{note}; closest of {len(names)} answers: {counts}".removeprefix("; "))
    return tuple(found)
