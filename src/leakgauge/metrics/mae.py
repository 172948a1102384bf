"""Mean absolute error: what GRNN's released code logs under the name MSE."""

from __future__ import annotations

from torch import Tensor

from leakgauge.metrics._metric import KINDS, Metric


def mae(truth: Tensor, recon: Tensor) -> Tensor:
    """(..., C, H, W) twice -> (...)."""
    return (truth - recon).abs().mean(dim=(-3, -2, -1))


MAE = Metric(
    name="mae",
    summary="mean absolute error per sample, values in [0, 1]",
    paper="Ren et al. 2022 (GRNN), as released",
    higher_is_better=False,
    low=0.0,
    high=1.0,
    applies_to=KINDS,
    compare=mae,
)
