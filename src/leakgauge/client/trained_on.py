"""Scores against what the client trained on, where a defense changed its samples before the local step.

An update gives away the samples behind it. Whoever recovers those exactly has lost nothing, however unlike the client's
own samples they are; so both are scored: the transformed sample, and the client's own after the transformation was
undone by someone who knows all of it. The second is a score, not an attack: it uses what only the client knows.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from leakgauge.metrics.assignment import assign, reorder
from leakgauge.metrics.psnr import PSNR
from leakgauge.metrics.scoring import claims_of
from leakgauge.metrics.ssim import SSIM
from leakgauge.types import Batch, DataSpec, Defense, Reconstruction

_METRICS = (PSNR, SSIM)


def scores_beside(
    truth: Batch, recon: Reconstruction, defenses: Sequence[Defense], seeds: Sequence[int], data: DataSpec
) -> dict[str, Tensor]:
    """Name -> (T, N): `psnr_trained_on`, `psnr_undone` and the same of SSIM; nothing where no sample was changed."""
    changing = [d for d in defenses if type(d).trained_on is not Defense.trained_on]
    if recon.inputs is None or len(changing) != 1 or data.kind != "image":
        return {}
    seen = changing[0].trained_on(truth, seeds).inputs
    free, claims, _ = claims_of(recon, seen)
    tidy = free.clamp(0, 1)
    order = assign(seen, tidy, claims)
    matched, claimed = reorder(tidy, order), reorder(claims, order)
    back = changing[0].undone(matched, seeds).clamp(0, 1)
    scores = {f"{m.name}_trained_on": m(seen, matched, data) for m in _METRICS}
    scores |= {f"{m.name}_undone": m(truth.inputs, back, data) for m in _METRICS}
    return {name: values.where(claimed, torch.nan) for name, values in scores.items()}
