"""A convolution and its kernel gradients, one per trial, as products over patches.

Written out with their own derivatives, because autograd would go through col2im and keep copies in an order that
products cannot use. Pictures are held channels-last, so that a patch is a few long runs of memory. Kernel gradients are
twice differentiable in all: the gradient itself and one derivative of it, which is what gradient matching needs. The
convolution is linear in its input and can be differentiated in it any number of times.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

Pair = tuple[int, int]


def kernel_gradients(
    x: Tensor, delta: Tensor, kernel: Pair, stride: Pair, dilation: Pair, trials: int, patches: Tensor | None = None
) -> Tensor:
    """(T, O, C, k, k) from padded inputs (T*N, C, H, W) and output gradients (T*N, O, H', W').

    `patches` are those of `x` that `convolved` made, if it did.
    """
    result: Tensor = _KernelGradients.apply(x, delta, patches, kernel, stride, dilation, trials)  # type: ignore[no-untyped-call]
    return result


def convolved(x: Tensor, weight: Tensor, stride: Pair, dilation: Pair) -> tuple[Tensor, Tensor]:
    """The padded pictures (B, C, H, W) convolved with fixed kernels: (B, O, H', W'), and the patches it took.

    In full float32 on a GPU this is faster than the library's convolutions, which then take the way over Fourier
    transforms.
    """
    result: tuple[Tensor, Tensor] = _Convolved.apply(x, weight.detach(), stride, dilation)  # type: ignore[no-untyped-call]
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
    def forward(
        ctx: Any,
        x: Tensor,
        delta: Tensor,
        patches: Tensor | None,
        kernel: Pair,
        stride: Pair,
        dilation: Pair,
        trials: int,
    ) -> Tensor:
        size = (delta.shape[2], delta.shape[3])
        if patches is None:
            patches = _patches(x, kernel, stride, dilation, size, trials)
        patches = patches.view(trials, -1, patches.shape[-1])
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
        return to_x, to_delta, None, None, None, None, None


def _back_to_inputs(
    kernels: Tensor, delta: Tensor, shape: tuple[int, ...], kernel: Pair, stride: Pair, dilation: Pair, trials: int
) -> Tensor:
    """A transposed convolution with each trial's own kernels: an ordinary one over the widened output gradients."""
    wide = _widened(delta, shape, kernel, stride, dilation)
    patches = _patches(wide, kernel, (1, 1), dilation, (shape[2], shape[3]), trials)  # (T, N*H*W, k*k*O)
    turned = kernels.flip(3, 4).permute(0, 3, 4, 1, 2).reshape(trials, -1, kernels.shape[2])  # (T, k*k*O, C)
    return torch.bmm(patches, turned).reshape(shape[0], shape[2], shape[3], shape[1]).permute(0, 3, 1, 2)


def _widened(delta: Tensor, shape: tuple[int, ...], kernel: Pair, stride: Pair, dilation: Pair) -> Tensor:
    """Output gradients with zeros between and around, so that a transposed convolution is a plain one of stride 1."""
    if stride != (1, 1):
        wide = delta.new_zeros(
            *delta.shape[:2], *((n - 1) * s + 1 for n, s in zip(delta.shape[2:], stride, strict=True))
        ).contiguous(memory_format=torch.channels_last)
        wide[:, :, :: stride[0], :: stride[1]] = delta
        delta = wide
    reach = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    missing = [n - (m + r) for n, m, r in zip(shape[2:], delta.shape[2:], reach, strict=True)]  # never visited
    return F.pad(delta, (reach[1], reach[1] + missing[1], reach[0], reach[0] + missing[0]))


class _Convolved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: Pair, dilation: Pair) -> tuple[Tensor, Tensor]:
        kernel = (weight.shape[2], weight.shape[3])
        height, width = (
            (n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(x.shape[2:], kernel, stride, dilation, strict=True)
        )
        patches = _patches(x, kernel, stride, dilation, (height, width), 1)[0]  # (B*H'*W', k*k*C)
        rows = patches @ weight.permute(0, 2, 3, 1).reshape(len(weight), -1).T
        ctx.save_for_backward(weight)
        ctx.how = (tuple(x.shape), kernel, stride, dilation)
        ctx.mark_non_differentiable(patches)
        ctx.set_materialize_grads(False)
        return rows.reshape(len(x), height, width, len(weight)).permute(0, 3, 1, 2), patches

    @staticmethod
    def backward(ctx: Any, upstream: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
        """The transposed convolution is a convolution with the kernels turned, so it can be differentiated again."""
        if upstream is None:
            return None, None, None, None
        (weight,) = ctx.saved_tensors
        shape, kernel, stride, dilation = ctx.how
        turned = weight.flip(2, 3).transpose(0, 1)
        to_x, _ = convolved(_widened(upstream, shape, kernel, stride, dilation), turned, (1, 1), dilation)
        return to_x, None, None, None
