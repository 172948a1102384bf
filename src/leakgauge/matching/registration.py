"""What several attempts at one picture agree on: their mean after each has been moved onto the others.

Gradients hardly say where in the picture an object is, so attempts recover it in different places. Each is compared
with the plain mean by phase correlation, which finds the circular shift of whole pixels that fits best, and is moved
back by it. (Yin et al. 2021 warp the attempts with RANSAC-flow, a network of its own; this is not that.)
"""

from __future__ import annotations

import torch
from torch import Tensor

CONSENSUS = ("registered", "mean")
_FURTHEST = 0.25  # of a side: a larger shift is rather chance than the same object elsewhere
_ROUNDING = 1e-12


def consensus(inputs: Tensor, trials: Tensor, kind: str = "registered") -> Tensor:
    """For each row of (A, N, *sample) what the rows of the same trial agree on. `trials` (A,) says whose row it is."""
    mean = mean_by_trial(inputs, trials)
    if kind == "mean" or inputs.dim() != 5:
        return mean
    return mean_by_trial(moved(inputs, shifts(inputs, mean)), trials)


def mean_by_trial(inputs: Tensor, trials: Tensor) -> Tensor:
    """For each row the mean over the rows of its trial."""
    mean = torch.empty_like(inputs)
    for trial in torch.unique(trials):
        own = trials == trial
        mean[own] = inputs[own].mean(0)
    return mean


def shifts(inputs: Tensor, onto: Tensor) -> Tensor:
    """Rows and columns (A, N, 2) by which each picture of (A, N, C, H, W) must be rolled to lie on its counterpart."""
    height, width = inputs.shape[-2:]
    mine, theirs = torch.fft.rfft2(inputs), torch.fft.rfft2(onto)
    cross = (theirs * mine.conj()).sum(-3)  # all channels move together
    surface = torch.fft.irfft2(cross / cross.abs().clamp_min(_ROUNDING), s=(height, width))  # (A, N, H, W)
    down, right = _signed(height, inputs), _signed(width, inputs)
    near = (down.abs() <= _FURTHEST * height)[:, None] & (right.abs() <= _FURTHEST * width)
    best = surface.masked_fill(~near, -torch.inf).flatten(-2).argmax(-1)  # (A, N)
    return torch.stack((down[best // width], right[best % width]), -1)


def moved(inputs: Tensor, by: Tensor) -> Tensor:
    """Each picture rolled by its own rows and columns; without asking the device for them."""
    height, width = inputs.shape[-2:]
    rows = (torch.arange(height, device=by.device) - by[..., :1]) % height  # (A, N, H)
    columns = (torch.arange(width, device=by.device) - by[..., 1:]) % width  # (A, N, W)
    place = (rows[..., :, None] * width + columns[..., None, :]).flatten(-2)  # (A, N, H x W)
    flat = inputs.flatten(-2)
    return flat.gather(-1, place[:, :, None].expand_as(flat)).view_as(inputs)


def _signed(side: int, like: Tensor) -> Tensor:
    """0, 1, ... up to half the side, then negative: what an index of a circular correlation means."""
    index = torch.arange(side, device=like.device)
    return torch.where(index > side // 2, index - side, index)
