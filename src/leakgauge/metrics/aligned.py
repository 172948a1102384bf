"""Undo one brightness and one contrast per image before scoring.

Some updates hide the input's scale by construction: train-mode BatchNorm with one sample, linear layers
without a bias. An aligned score shows what shape leaked all the same. It uses the truth, so it stands beside
the raw score and never in its place.
"""

from __future__ import annotations

import torch
from torch import Tensor

from leakgauge.metrics._metric import Metric
from leakgauge.metrics.psnr import CAP, psnr
from leakgauge.metrics.ssim import ssim


def align(truth: Tensor, recon: Tensor) -> Tensor:
    """(..., C, H, W) twice -> scale * recon + offset, the least-squares fit per image, clamped to [0, 1].

    Take the unclamped reconstruction, in the truth's order. A constant one becomes the truth's mean.
    """
    over = (-3, -2, -1)
    centred = recon - recon.mean(over, keepdim=True)
    power = centred.square().mean(over, keepdim=True)
    shared = (centred * truth).mean(over, keepdim=True)
    # a constant image is not quite constant once its rounded mean is taken off: that rest is not a signal
    signal = power > (1e-6 * recon.abs().amax(over, keepdim=True)).square()
    scale = torch.where(signal, shared / power.where(signal, torch.ones_like(power)), 0.0)
    return (truth.mean(over, keepdim=True) + scale * centred).clamp(0, 1)


def psnr_aligned(truth: Tensor, recon: Tensor) -> Tensor:
    """(..., C, H, W) twice, unclamped -> (...), in dB."""
    return psnr(truth, align(truth, recon))


def ssim_aligned(truth: Tensor, recon: Tensor) -> Tensor:
    """(..., C, H, W) twice, unclamped -> (...)."""
    return ssim(truth, align(truth, recon))


PSNR_ALIGNED = Metric(
    name="psnr_aligned",
    summary="PSNR in dB after one scale and offset per image were fitted to the truth; beside the raw score only",
    paper="own; for updates that hide the input's scale",
    higher_is_better=True,
    low=0.0,
    high=CAP,
    applies_to=("image",),
    compare=psnr_aligned,
    clamped=False,
)
SSIM_ALIGNED = Metric(
    name="ssim_aligned",
    summary="SSIM after one scale and offset per image were fitted to the truth; beside the raw score only",
    paper="Wang et al. 2004, aligned",
    higher_is_better=True,
    low=-1.0,
    high=1.0,
    applies_to=("image",),
    compare=ssim_aligned,
    clamped=False,
)
