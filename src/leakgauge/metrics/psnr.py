"""Errors pixel by pixel, for values in [0, 1]: MSE, MAE, PSNR, and how much nearer than a thumbnail a picture is.

MSE is the mean over all pixels and channels of (x - x')^2, PSNR is 10 log10(1 / MSE) in dB. Average the images' PSNRs,
not the PSNR of their average error. Figures of different papers do not compare: several released codes log something
else as MSE (GRNN the mean absolute error, FedKL the root, CPL's notebooks the L2 norm). FedKL's code puts the *root* of
the error, on 0..255, where the error belongs, which halves the scale and lifts destroyed images to about 28 "dB".
`psnr_from_fedkl` brings such a figure back.

Detail is PSNR less that of the true picture at 4 x 4 pixels. A guess that never saw an update can get brightness and
coarse shape right, on smooth pictures very right. It does not get the detail of one picture. Measured with other
pictures of the same label in the place of a recovery: of 9,000 pairs of digits (8 x 8) one came 10 dB beyond the
thumbnail, of 10,000 of MNIST, 5,000 of faces and 9,000 of photographs none.
"""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor

from leakgauge.metrics import ALL_KINDS, Metric

CAP = 100.0  # dB; an exact copy would be infinite and carry every mean with it
_FLOOR = 10 ** (-CAP / 10)  # the error at the cap
_PEAK = 20 * math.log10(255)  # 48.13 dB
_SIDE = 4  # pixels of a thumbnail; half the picture's side if that is less


def mse(truth: Tensor, recon: Tensor) -> Tensor:
    """(..., C, H, W) twice -> (...)."""
    return (truth - recon).square().mean(dim=(-3, -2, -1))


def mae(truth: Tensor, recon: Tensor) -> Tensor:
    """(..., C, H, W) twice -> (...)."""
    return (truth - recon).abs().mean(dim=(-3, -2, -1))


def psnr(truth: Tensor, recon: Tensor) -> Tensor:
    """(..., C, H, W) twice -> (...), in dB, at most 100."""
    return -10 * mse(truth, recon).clamp(min=_FLOOR).log10()


def psnr_from_fedkl(reported: float) -> float:
    """True PSNR behind a figure computed as 10 log10(255^2 / RMSE): 2 reported - 48.13 dB.

    With R the root-mean-square error on 0..255: reported = 2 (24.07) - 10 log10 R while
    true = 2 (24.07) - 20 log10 R, so true = 2 reported - 20 log10 255.
    """
    return 2 * reported - _PEAK


def psnr_as_fedkl(true: float) -> float:
    """The figure that FedKL's formula gives for a true PSNR: the inverse of `psnr_from_fedkl`."""
    return (true + _PEAK) / 2


def detail(truth: Tensor, recon: Tensor) -> Tensor:
    """(..., C, H, W) twice -> (...), in dB; above zero a recovery shows more than the thumbnail does."""
    return psnr(truth, recon) - psnr(truth, thumbnail(truth))


def thumbnail(pictures: Tensor) -> Tensor:
    """(..., C, H, W) -> the same shape: what is left at 4 x 4 pixels, drawn large again."""
    height, width = pictures.shape[-2:]
    flat = pictures.reshape(-1, *pictures.shape[-3:])
    small = F.adaptive_avg_pool2d(flat, (min(_SIDE, -(-height // 2)), min(_SIDE, -(-width // 2))))
    return F.interpolate(small, (height, width), mode="bilinear", align_corners=False).reshape(pictures.shape)


MSE = Metric("mse", "mean squared error per sample, values in [0, 1]", "Zhu et al. 2019 (DLG)", mse, ALL_KINDS)
MAE = Metric(
    "mae", "mean absolute error per sample, values in [0, 1]", "Ren et al. 2022 (GRNN), as released", mae, ALL_KINDS
)
PSNR = Metric(
    "psnr",
    "peak signal-to-noise ratio per sample in dB, capped at 100",
    "Geiping et al. 2020 (Inverting Gradients)",
    psnr,
    ALL_KINDS,
    high=CAP,
    higher_is_better=True,
)
DETAIL = Metric(
    "detail",
    "dB by which a recovery is nearer than the record's own thumbnail of 4 x 4 pixels",
    "own; for pictures that are like any other of their kind",
    detail,
    low=-CAP,
    high=CAP,
    higher_is_better=True,
)
