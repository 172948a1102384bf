"""Undo one brightness and one contrast per image before scoring.

Some updates hide the input's scale by construction: train-mode BatchNorm with one sample, linear layers
without a bias. An aligned score shows what shape leaked all the same. It uses the truth, so it stands beside
the raw score and never in its place.
"""

from __future__ import annotations

import torch
from torch import Tensor


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
