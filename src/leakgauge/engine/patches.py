"""Kernel gradients of a convolution, one per trial, as products over patches.

Written out with its own derivative, because autograd would go through col2im and keep copies in an order that products
cannot use. Pictures are held channels-last, so that a patch is a few long runs of memory. Twice differentiable in all:
the gradient itself and one derivative of it, which is what gradient matching needs.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

Pair = tuple[int, int]


def kernel_gradients(x: Tensor, delta: Tensor, kernel: Pair, stride: Pair, dilation: Pair, trials: int) -> Tensor:
    """(T, O, C, k, k) from padded inputs (T*N, C, H, W) and output gradients (T*N, O, H', W')."""
    result: Tensor = _KernelGradients.apply(x, delta, kernel, stride, dilation, trials)  # type: ignore[no-untyped-call]
    return result


def _patches(x: Tensor, kernel: Pair, stride: Pair, dilation: Pair, size: Pair, trials: int) -> Tensor:
    """(T*N, C, H, W) -> (T, N*H'*W', k*k*C) for an output of `size`."""
    rows = x.permute(0, 2, 3, 1).contiguous()  # free where the pictures already are channels-last
    n, height, width, channels = rows.stride()
    view = rows.as_strided(
        (len(rows), *size, *kernel, rows.shape[3]),
        (n, height * stride[0], width * stride[1], height * dilation[0], width * dilation[1], channels),
    )
    return view.reshape(trials, -1, kernel[0] * kernel[1] * rows.shape[3])


def _rows(pictures: Tensor, trials: int) -> Tensor:
    """(T*N, O, H', W') -> (T, N*H'*W', O)."""
    return pictures.permute(0, 2, 3, 1).reshape(trials, -1, pictures.shape[1])


class _KernelGradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, delta: Tensor, kernel: Pair, stride: Pair, dilation: Pair, trials: int) -> Tensor:
        size = (delta.shape[2], delta.shape[3])
        patches = _patches(x, kernel, stride, dilation, size, trials)
        ctx.save_for_backward(patches, delta)
        ctx.how = (tuple(x.shape), kernel, stride, dilation, size, trials)
        found = torch.bmm(_rows(delta, trials).transpose(1, 2), patches)  # (T, O, k*k*C)
        return found.reshape(trials, delta.shape[1], *kernel, x.shape[1]).permute(0, 1, 4, 2, 3)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """`upstream` (T, O, C, k, k) acts as a kernel of its own on each trial: forwards for delta, backwards for x."""
        patches, delta = ctx.saved_tensors
        shape, kernel, stride, dilation, size, trials = ctx.how
        kernels = upstream.permute(0, 1, 3, 4, 2).reshape(trials, upstream.shape[1], -1)  # (T, O, k*k*C)
        to_delta = to_x = None
        if ctx.needs_input_grad[1]:
            rows = torch.bmm(patches, kernels.transpose(1, 2))  # (T, N*H'*W', O)
            to_delta = rows.reshape(shape[0], *size, -1).permute(0, 3, 1, 2)
        if ctx.needs_input_grad[0]:
            to_x = _back_to_inputs(upstream, delta, shape, kernel, stride, dilation, trials)
        return to_x, to_delta, None, None, None, None


def _back_to_inputs(
    kernels: Tensor, delta: Tensor, shape: tuple[int, ...], kernel: Pair, stride: Pair, dilation: Pair, trials: int
) -> Tensor:
    """A transposed convolution with each trial's own kernels: an ordinary one over the widened output gradients."""
    if stride != (1, 1):  # put zeros between, so that the rest is the same
        wide = delta.new_zeros(
            *delta.shape[:2], *((n - 1) * s + 1 for n, s in zip(delta.shape[2:], stride, strict=True))
        )
        wide[:, :, :: stride[0], :: stride[1]] = delta
        delta = wide
    reach = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    missing = [n - (m + r) for n, m, r in zip(shape[2:], delta.shape[2:], reach, strict=True)]  # never visited
    delta = F.pad(delta, (reach[1], reach[1] + missing[1], reach[0], reach[0] + missing[0]))
    patches = _patches(delta, kernel, (1, 1), dilation, (shape[2], shape[3]), trials)  # (T, N*H*W, k*k*O)
    turned = kernels.flip(3, 4).permute(0, 3, 4, 1, 2).reshape(trials, -1, kernels.shape[2])  # (T, k*k*O, C)
    return torch.bmm(patches, turned).reshape(shape[0], shape[2], shape[3], shape[1]).permute(0, 3, 1, 2)
