"""Layers of which every trial has its own weights, T networks side by side: all of them are batched products.

Pictures are held channels-last, (T, N, H, W, C), so that a product over channels needs no copy. Nothing here looks at
another trial, and everything can be differentiated as often as one likes. The slow loop each must equal is the layer of
`torch.nn` that its docstring names, run trial by trial.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

_EPSILON = 1e-5  # of nn.BatchNorm2d


def dense(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """`nn.Linear`: (T, N, I), (T, O, I), (T, O) -> (T, N, O)."""
    return torch.baddbmm(bias[:, None], x, weight.transpose(1, 2))


def unfolded(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """`nn.ConvTranspose2d` on pictures of one pixel: (T, N, I), (T, I, O, k, k), (T, O) -> (T, N, k, k, O)."""
    trials, _, channels, *kernel = weight.shape
    products = torch.bmm(x, weight.flatten(2)).reshape(trials, x.shape[1], channels, *kernel)
    return products.permute(0, 1, 3, 4, 2) + bias[:, None, None, None]


def doubled_convolution(x: Tensor, kernels: Tensor) -> Tensor:
    """Nearest-neighbour enlargement by two, then `nn.Conv2d` of k3 p1 without bias: (T, N, 2H, 2W, O).

    From (T, N, H, W, I) and (T, O, I, 3, 3). Copies of a pixel have the same products with the nine taps, so these are
    computed before the enlargement, a quarter of the work, and then added up at their places.
    """
    trials, outputs, inputs = kernels.shape[:3]
    taps = kernels.permute(0, 2, 3, 4, 1).reshape(trials, inputs, -1)  # (T, I, 3*3*O)
    products = torch.bmm(x.reshape(trials, -1, inputs), taps)
    products = products.reshape(*x.shape[:4], 3, 3, outputs)  # (T, N, H, W, 3, 3, O)
    rows = _doubled(products.unbind(4), 2)  # (T, N, 2H, W, 3, O)
    return _doubled(rows.unbind(4), 3)  # (T, N, 2H, 2W, O)


def _doubled(taps: tuple[Tensor, ...], axis: int) -> Tensor:
    """Each place becomes two: the first sees its predecessor and twice itself, the second itself and its successor."""
    before, at, behind = taps
    length = at.shape[axis]
    first = at + behind + _moved(before.narrow(axis, 0, length - 1), axis, 1, 0)
    second = before + at + _moved(behind.narrow(axis, 1, length - 1), axis, 0, 1)
    return torch.stack((first, second), axis + 1).flatten(axis, axis + 1)


def _moved(x: Tensor, axis: int, in_front: int, behind: int) -> Tensor:
    """With zeros added along one axis: what lies outside the picture."""
    return F.pad(x, [0, 0] * (x.dim() - 1 - axis) + [in_front, behind])


def batch_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """`nn.BatchNorm2d` in train mode, over the trial's own samples and pixels: (T, N, H, W, C) with (T, C) twice."""
    variance, mean = torch.var_mean(x, (1, 2, 3), correction=0, keepdim=True)
    scale = (variance + _EPSILON).rsqrt() * weight[:, None, None, None]
    return x * scale + (bias[:, None, None, None] - mean * scale)


def gated(x: Tensor) -> Tensor:
    """`nn.GLU` over channels: the first half, weighed by the sigmoid of the second."""
    return F.glu(x, -1)
