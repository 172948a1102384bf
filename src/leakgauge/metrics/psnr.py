"""Peak signal-to-noise ratio in dB, per image, for values in [0, 1]: 10 log10(1 / MSE).

Average the images' PSNRs, not the PSNR of their average error. Figures of different papers do not compare:
FedKL's code puts the *root* of the error, on 0..255, where the error belongs, which halves the scale and
lifts destroyed images to about 28 "dB". `psnr_from_fedkl` brings such a figure back.
"""

from __future__ import annotations

import math

from torch import Tensor

from leakgauge.metrics._metric import KINDS, Metric
from leakgauge.metrics.mse import mse

CAP = 100.0  # dB; an exact copy would be infinite and carry every mean with it
_FLOOR = 10 ** (-CAP / 10)  # the error at the cap
_PEAK = 20 * math.log10(255)  # 48.13 dB


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


PSNR = Metric(
    name="psnr",
    summary="peak signal-to-noise ratio per sample in dB, capped at 100",
    paper="Geiping et al. 2020 (Inverting Gradients)",
    higher_is_better=True,
    low=0.0,
    high=CAP,
    applies_to=KINDS,
    compare=psnr,
)
