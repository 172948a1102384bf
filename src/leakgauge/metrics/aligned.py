"""Undo one brightness and one contrast per image before scoring.

Some updates hide the input's scale by construction: train-mode BatchNorm with one sample, linear layers without a bias.
An aligned score shows what shape leaked all the same. It uses the truth, so it stands beside the raw score and never in
its place.
"""

from __future__ import annotations

import torch
from torch import Tensor

from leakgauge.metrics import Metric
from leakgauge.metrics.psnr import CAP, psnr
from leakgauge.metrics.ssim import ssim

_SUMMARY = "after one scale and offset per image were fitted to the truth; beside the raw score only"


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
    "psnr_aligned",
    f"PSNR in dB {_SUMMARY}",
    "own; for updates that hide the input's scale",
    psnr_aligned,
    high=CAP,
    higher_is_better=True,
    clamped=False,
)
SSIM_ALIGNED = Metric(
    "ssim_aligned",
    f"SSIM {_SUMMARY}",
    "Wang et al. 2004, aligned",
    ssim_aligned,
    low=-1.0,
    higher_is_better=True,
    clamped=False,
)
