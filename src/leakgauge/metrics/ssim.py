"""Structural similarity (Wang et al. 2004), per image, for values in [0, 1]. Two dialects.

`ssim` is the default: an 11 x 11 Gaussian window (sigma 1.5), population covariance, and only those positions
where the whole window lies on the image. Averaging the padded border in, as torchmetrics does, flatters dark
edges: 0.47 where this gives 0.28 on MNIST. `ssim_uniform7` is scikit-image's default, which Ren 2023 and Scheliga et
al. 2022 use (the latter on normalised images, negative values set to 0).

Images under 11 px (or 7) use the largest odd window that fits, so that their value is defined; it is not
comparable with that of larger images.
"""

from __future__ import annotations

import torch
from torch import Tensor

from leakgauge.metrics import Metric

_C1 = 0.01**2  # (k L)^2 with L = 1: keep the quotient steady on flat patches
_C2 = 0.03**2
_CHUNK = 2**20  # pixels at a time: a dozen float64 maps are alive at once, and small ones stay in cache


def ssim(truth: Tensor, recon: Tensor) -> Tensor:
    """(..., C, H, W) twice -> (...); mean over positions and channels."""
    size = _fitting(11, truth)
    offsets = torch.arange(size, dtype=torch.float64, device=truth.device) - size // 2
    bell = (-offsets.square() / (2 * 1.5**2)).exp()
    return _similarity(truth, recon, bell / bell.sum(), covariance_factor=1.0)


def ssim_uniform7(truth: Tensor, recon: Tensor) -> Tensor:
    """(..., C, H, W) twice -> (...); 7 x 7 uniform window and sample covariance."""
    size = _fitting(7, truth)
    flat = torch.full((size,), 1 / size, dtype=torch.float64, device=truth.device)
    return _similarity(truth, recon, flat, covariance_factor=size**2 / max(size**2 - 1, 1))


def _similarity(truth: Tensor, recon: Tensor, window: Tensor, covariance_factor: float) -> Tensor:
    pictures = (-1, *truth.shape[-3:])
    some = max(1, _CHUNK // max(truth.shape[-3:].numel(), 1))
    pairs = zip(torch.split(truth.reshape(pictures), some), torch.split(recon.reshape(pictures), some), strict=True)
    values = torch.cat([_quality(x, y, window, covariance_factor) for x, y in pairs])
    return values.reshape(truth.shape[:-3]).to(truth.dtype)


def _quality(truth: Tensor, recon: Tensor, window: Tensor, covariance_factor: float) -> Tensor:
    """(B, C, H, W) twice -> (B,)."""
    # float64: E[x^2] - E[x]^2 cancels, and in float32 what is left drowns the stabiliser 9e-4 on flat patches
    x, y = truth.double(), recon.double()
    mx, my, mxx, myy, mxy = (_blur(t, window) for t in (x, y, x * x, y * y, x * y))  # (B, C, h, w)
    vx = covariance_factor * (mxx - mx * mx)
    vy = covariance_factor * (myy - my * my)
    cov = covariance_factor * (mxy - mx * my)
    quality = (2 * mx * my + _C1) * (2 * cov + _C2) / ((mx * mx + my * my + _C1) * (vx + vy + _C2))
    return quality.mean(dim=(-3, -2, -1))


def _blur(images: Tensor, window: Tensor) -> Tensor:
    """Weighted mean under the separable window, whole windows only: (..., H, W) -> (..., h, w)."""
    # two matrix products: several times faster on a CPU than a one-channel convolution in float64
    return _band(images.shape[-2], window) @ images @ _band(images.shape[-1], window).T


def _band(size: int, window: Tensor) -> Tensor:
    """The matrix (size - k + 1, size) that slides a window (k,) along a vector."""
    band = window.new_zeros(size - len(window) + 1, size)
    for offset, weight in enumerate(window):
        band.diagonal(offset)[: len(band)] = weight
    return band


def _fitting(size: int, images: Tensor) -> int:
    """The largest odd window up to `size` that fits on the images."""
    room = min(size, int(images.shape[-2]), int(images.shape[-1]))
    return room if room % 2 else room - 1


SSIM = Metric(
    "ssim",
    "structural similarity per image, 11 x 11 Gaussian window, border cropped",
    "Wang et al. 2004",
    ssim,
    low=-1.0,
    higher_is_better=True,
)
SSIM_UNIFORM7 = Metric(
    "ssim_uniform7",
    "structural similarity per image with a 7 x 7 uniform window, as Ren 2023 prints it",
    "Wang et al. 2004",
    ssim_uniform7,
    low=-1.0,
    higher_is_better=True,
)
