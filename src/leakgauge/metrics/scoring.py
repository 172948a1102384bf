"""The one place where a reconstruction is compared with the truth: clamp, match, score.

In this order: values that are not finite become blank and flag their trial as failed, everything is clamped to [0, 1],
each trial's records are matched by least MSE, and only then is anything scored. Aligned scores fit their scale before
they clamp, so they get the matched records unclamped. What an attack does not claim has no score, and a record without
one finite value is no claim.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.errors import BadInput
from leakgauge.metrics import Metric
from leakgauge.metrics.assignment import assign, reorder
from leakgauge.metrics.cells import CELLS
from leakgauge.metrics.psnr import DETAIL, MSE, PSNR
from leakgauge.metrics.ssim import SSIM
from leakgauge.types import BLANK, Batch, DataSpec, Reconstruction

DEFAULT = (MSE, PSNR, SSIM, DETAIL, CELLS)


@dataclass(frozen=True)
class Scores:
    """What was recovered, per trial and record, in the truth's order."""

    records: Mapping[str, Tensor]  # metric -> (T, N), nan where nothing is claimed; empty if no inputs were
    label_accuracy: Tensor | None  # (T,); None if no labels were claimed
    matched: Tensor | None  # (T, N, *shape), clamped and in the order of the truth; blank where nothing is claimed
    failed: Tensor  # (T,) bool: the reconstruction held values that are not finite
    order: Tensor | None = None  # (T, N): record i of the truth is record order[t, i] of the reconstruction

    def record(self, trial: int, number: int) -> dict[str, float | None]:
        """What one record scored; None where nothing is claimed."""
        return {name: _number(v[trial, number]) for name, v in self.records.items()}

    def means(self, trial: int) -> dict[str, float | None]:
        """Over the records that are claimed; None where none is."""
        return {name: _number(v[trial].nanmean()) for name, v in self.records.items()}


def score(truth: Batch, recon: Reconstruction, data: DataSpec, metrics: Sequence[Metric] = DEFAULT) -> Scores:
    """Score every trial; metrics that do not apply to this kind of data are left out (SSIM of a table)."""
    labels = None
    if recon.labels is not None and truth.labels.dim() == 2 and not truth.labels.is_floating_point():
        _require_trials("labels", recon.labels, truth)
        labels = label_accuracy(truth.labels, recon.labels.detach().to(truth.labels.device))
    if recon.inputs is None:
        nothing = torch.zeros(truth.trials, dtype=torch.bool, device=truth.inputs.device)
        return Scores({}, labels, None, nothing)
    _require_trials("inputs", recon.inputs, truth)
    if recon.inputs.shape != truth.inputs.shape:
        allowed, got = f"shaped {tuple(truth.inputs.shape)} (trials, records, sample)", tuple(recon.inputs.shape)
        do = "return one reconstruction per private record"
        raise BadInput("reconstructed inputs", allowed=allowed, got=got, do=do)
    free, claims, failed = claims_of(recon, truth.inputs)
    tidy = free.clamp(0, 1)
    order = assign(truth.inputs, tidy, claims)
    matched, unclamped, claimed = reorder(tidy, order), reorder(free, order), reorder(claims, order)
    records = {
        m.name: m(truth.inputs, matched if m.clamped else unclamped, data).where(claimed, torch.nan)
        for m in metrics
        if m.fits(data)
    }
    return Scores(records, labels, matched, failed, order)


def claims_of(recon: Reconstruction, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs (T, N, *shape), blank where nothing is claimed; what is claimed (T, N); which trials (T,) diverged."""
    assert recon.inputs is not None
    inputs = recon.inputs.detach().to(like)
    said = torch.ones(inputs.shape[:2], dtype=torch.bool, device=like.device)
    if recon.claimed is not None:
        said = recon.claimed.to(like.device)
    finite = inputs.isfinite()
    claims = said & finite.flatten(2).any(2)  # one lost pixel does not take the others back
    shown = finite & claims.reshape(*claims.shape, *[1] * (inputs.dim() - 2))
    lost = said & ~finite.flatten(2).all(2)
    return inputs.where(shown, torch.full_like(inputs, BLANK)), claims, lost.any(1)


def _require_trials(what: str, tensor: Tensor, truth: Batch) -> None:
    if tensor.shape[0] != truth.trials:
        allowed = f"given for {truth.trials} trials"
        raise BadInput(f"reconstructed {what}", allowed=allowed, got=tensor.shape[0], do="return one row per trial")


def _number(value: Tensor) -> float | None:
    number = float(value)
    return None if math.isnan(number) else number


def label_accuracy(truth: Tensor, guess: Tensor) -> Tensor:
    """|multiset intersection| / N, in any order: (T, N) true and (T, M) guessed labels -> (T,) in [0, 1].

    A label that occurs twice must be guessed twice. Spare guesses (M > N) are not held against the attack.
    """
    both = torch.cat([truth, guess.to(truth.device)], dim=1)  # (T, N + M)
    classes, index = torch.unique(both, return_inverse=True)
    each = torch.nn.functional.one_hot(index, len(classes))  # (T, N + M, classes)
    true, guessed = each[:, : truth.shape[1]].sum(1), each[:, truth.shape[1] :].sum(1)
    return torch.minimum(true, guessed).sum(1).float() / max(truth.shape[1], 1)
