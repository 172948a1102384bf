"""Operations on grey levels and colours, on batches of pictures (M, C, H, W) in [0, 1]; checked against Pillow's.

Where Pillow looks a value up in a table of 256 levels, so do we, and hand the slope of a straight line back: these
operations have none of their own that an optimiser could use.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

_LEVELS = 255
_LUMA = (19595 / 65536, 38470 / 65536, 7471 / 65536)  # Pillow's whole numbers for 0.299, 0.587, 0.114
_SMOOTH = torch.tensor([[1.0, 1.0, 1.0], [1.0, 5.0, 1.0], [1.0, 1.0, 1.0]]) / 13  # what sharpness departs from


def inverted(pictures: Tensor) -> Tensor:
    return 1 - pictures


def contrast(pictures: Tensor, factor: Tensor) -> Tensor:
    """Away from the mean grey, rounded to a level, by `factor` (M,)."""
    mean = _nearest_level(_grey(pictures).mean((1, 2, 3), keepdim=True))
    return _blended(mean, pictures, factor)


def colour(pictures: Tensor, factor: Tensor) -> Tensor:
    """Away from the grey picture; a picture of one channel stays as it is."""
    return _blended(_grey(pictures), pictures, factor)


def brightness(pictures: Tensor, factor: Tensor) -> Tensor:
    return _blended(torch.zeros_like(pictures), pictures, factor)


def sharpness(pictures: Tensor, factor: Tensor) -> Tensor:
    """Away from a smoothed picture whose border is the picture's own."""
    return _blended(smoothed(pictures), pictures, factor)


def smoothed(pictures: Tensor) -> Tensor:
    channels, height, width = pictures.shape[1:]
    if min(height, width) < 3:
        return pictures
    kernel = _smoothing(pictures.dtype, pictures.device).expand(channels, 1, 3, 3)
    inner = torch.nn.functional.conv2d(pictures, kernel, groups=channels)
    middle = torch.nn.functional.pad(torch.ones_like(inner[:1, :1]), (1, 1, 1, 1))
    return torch.where(middle > 0, torch.nn.functional.pad(_nearest_level(inner), (1, 1, 1, 1)), pictures)


def posterized(pictures: Tensor, bits: int) -> Tensor:
    """Only the `bits` highest bits of each level stay."""
    step = 2 ** (8 - bits)
    levels = torch.floor(_levels(pictures) / step) * step
    return _straight_through(pictures, levels / _LEVELS)


def solarized(pictures: Tensor, threshold: float) -> Tensor:
    """Levels from `threshold` on, in 0 to 256, are inverted."""
    return torch.where(_levels(pictures) < threshold, pictures, 1 - pictures)


def autocontrasted(pictures: Tensor) -> Tensor:
    """Each channel is stretched to the whole range; a channel of one level stays."""
    low, high = pictures.amin((2, 3), keepdim=True), pictures.amax((2, 3), keepdim=True)
    width = high - low
    return torch.where(width > 0, (pictures - low) / torch.where(width > 0, width, torch.ones_like(width)), pictures)


def equalized(pictures: Tensor) -> Tensor:
    """Each channel's levels are spread evenly, by Pillow's integer rule."""
    levels = _levels(pictures).long()  # (M, C, H, W)
    flat = levels.flatten(2)
    counts = torch.zeros(*flat.shape[:2], _LEVELS + 1, dtype=torch.long, device=flat.device)
    counts.scatter_add_(2, flat, torch.ones_like(flat))
    brightest = counts.gather(2, flat.amax(2, keepdim=True))
    step = (flat.shape[2] - brightest) // _LEVELS  # (M, C, 1)
    before = counts.cumsum(2) - counts
    table = ((step // 2 + before) // step.clamp_min(1)).clamp_max(_LEVELS)
    table = torch.where(step > 0, table, torch.arange(_LEVELS + 1, device=flat.device))
    spread = table.gather(2, flat).view_as(levels).to(pictures) / _LEVELS
    return _straight_through(pictures, spread)


def _grey(pictures: Tensor) -> Tensor:
    """(M, 1, H, W): the picture's luma, in levels as Pillow rounds it."""
    if pictures.shape[1] != len(_LUMA):
        return _nearest_level(pictures.mean(1, keepdim=True))
    weights = _luma(pictures.dtype, pictures.device)
    return _nearest_level((pictures * weights[:, None, None]).sum(1, keepdim=True))


@cache
def _luma(dtype: torch.dtype, device: torch.device) -> Tensor:
    """Kept on the device: sent there in every step, it would stop a search from being recorded."""
    return torch.tensor(_LUMA, dtype=dtype, device=device)


@cache
def _smoothing(dtype: torch.dtype, device: torch.device) -> Tensor:
    return _SMOOTH.to(device, dtype)


def _blended(plain: Tensor, pictures: Tensor, factor: Tensor) -> Tensor:
    return (plain + factor.to(pictures).view(-1, 1, 1, 1) * (pictures - plain)).clamp(0, 1)


def _levels(pictures: Tensor) -> Tensor:
    """0 to 255, whole numbers, without a slope."""
    return (pictures.detach() * _LEVELS).round().clamp(0, _LEVELS)


def _nearest_level(values: Tensor) -> Tensor:
    return _straight_through(values, _levels(values) / _LEVELS)


def _straight_through(values: Tensor, result: Tensor) -> Tensor:
    """`result`, with the slope of `values`."""
    return result + (values - values.detach())
