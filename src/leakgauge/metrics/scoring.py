"""The one place where a reconstruction meets the truth: clamp, match, score.

In this order: values that are not finite become mid-grey and flag their trial as failed, everything is
clamped to [0, 1], each trial's records are matched by least MSE, and only then is anything scored. Aligned scores fit
their scale before they clamp, so they get the matched records unclamped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.errors import BadInput
from leakgauge.metrics._metric import Metric
from leakgauge.metrics.assignment import NOT_FOUND, assign, reorder
from leakgauge.metrics.label_accuracy import label_accuracy
from leakgauge.metrics.mse import MSE
from leakgauge.metrics.psnr import PSNR
from leakgauge.metrics.ssim import SSIM
from leakgauge.types import Batch, DataSpec, Reconstruction

DEFAULT = (MSE, PSNR, SSIM)


@dataclass(frozen=True)
class Scores:
    """What was recovered, per trial and record, in the truth's order."""

    records: Mapping[str, Tensor]  # metric name -> (T, N); empty if no inputs were claimed
    label_accuracy: Tensor | None  # (T,); None if no labels were claimed
    matched: Tensor | None  # (T, N, *shape), clamped and in the order of the truth
    failed: Tensor  # (T,) bool: the reconstruction held values that are not finite


def score(truth: Batch, recon: Reconstruction, data: DataSpec, metrics: Sequence[Metric] = DEFAULT) -> Scores:
    """Score every trial; metrics that do not apply to this kind of data are left out (SSIM of a table)."""
    labels = None
    if recon.labels is not None:
        _require_trials("labels", recon.labels, truth)
        labels = label_accuracy(truth.labels, recon.labels.detach().to(truth.labels.device))
    if recon.inputs is None:
        nothing = torch.zeros(truth.trials, dtype=torch.bool, device=truth.inputs.device)
        return Scores({}, labels, None, nothing)
    _require_trials("inputs", recon.inputs, truth)
    if recon.inputs.shape != truth.inputs.shape:
        raise BadInput(
            "reconstructed inputs",
            allowed=f"shaped {tuple(truth.inputs.shape)} (trials, records, sample)",
            got=tuple(recon.inputs.shape),
            do="return one reconstruction per private record",
        )
    claimed = recon.inputs.detach().to(truth.inputs)  # (T, N, *shape)
    finite = claimed.isfinite()
    free = claimed.where(finite, torch.full_like(claimed, NOT_FOUND))
    tidy = free.clamp(0, 1)
    order = assign(truth.inputs, tidy)
    matched, unclamped = reorder(tidy, order), reorder(free, order)
    records = {
        m.name: m(truth.inputs, matched if m.clamped else unclamped, data) for m in metrics if data.kind in m.applies_to
    }
    return Scores(records, labels, matched, ~finite.flatten(1).all(1))


def _require_trials(what: str, tensor: Tensor, truth: Batch) -> None:
    if tensor.shape[0] != truth.trials:
        raise BadInput(
            f"reconstructed {what}",
            allowed=f"given for {truth.trials} trials",
            got=tensor.shape[0],
            do="return one row per trial",
        )
