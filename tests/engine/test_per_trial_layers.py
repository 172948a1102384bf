"""Layers with weights per trial: each equals its torch.nn counterpart run trial by trial, slopes included."""

import pytest
import torch
import torch.nn.functional as F

from leakgauge.engine.per_trial_layers import batch_norm, dense, doubled_convolution, gated, unfolded

TRIALS = 3


def draw(*shape, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(TRIALS, *shape, generator=g, dtype=torch.float64)


def last(pictures):
    """(N, C, H, W) -> (N, H, W, C)."""
    return pictures.permute(0, 2, 3, 1)


def first(pictures):
    return pictures.permute(0, 3, 1, 2)


def check(layer, slow, *arguments):
    """Same values trial by trial, and the same slope in every argument."""
    arguments = [a.requires_grad_() for a in arguments]
    ours = layer(*arguments)
    theirs = torch.stack([slow(*(a[t] for a in arguments)) for t in range(TRIALS)])
    torch.testing.assert_close(ours, theirs)
    weights = torch.randn(theirs.shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    for mine, other in zip(
        torch.autograd.grad((ours * weights).sum(), arguments),
        torch.autograd.grad((theirs * weights).sum(), arguments),
        strict=True,
    ):
        torch.testing.assert_close(mine, other)


def test_dense_is_linear():
    check(dense, F.linear, draw(4, 5), draw(6, 5, seed=1), draw(6, seed=2))


def test_unfolded_is_a_transposed_convolution_of_one_pixel():
    check(
        unfolded,
        lambda x, w, b: last(F.conv_transpose2d(x[..., None, None], w, b)),
        draw(2, 5),
        draw(5, 6, 4, 4, seed=1),
        draw(6, seed=2),
    )


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (4, 4)])
def test_doubled_convolution_enlarges_and_convolves(size):
    def slow(x, kernels):
        return last(F.conv2d(F.interpolate(first(x), scale_factor=2.0, mode="nearest"), kernels, padding=1))

    check(doubled_convolution, slow, draw(2, *size, 5), draw(6, 5, 3, 3, seed=1))


@pytest.mark.parametrize("samples", [1, 4])
def test_batch_norm_uses_the_statistics_of_the_trial_alone(samples):
    def slow(x, weight, bias):
        return last(F.batch_norm(first(x), None, None, weight, bias, training=True))

    check(batch_norm, slow, draw(samples, 3, 3, 4), draw(4, seed=1), draw(4, seed=2))


def test_gated_is_a_glu_over_channels():
    check(gated, lambda x: last(F.glu(first(x), 1)), draw(2, 3, 3, 8))
