"""Convolutions, kernel gradients per trial, and their derivatives, against torch's own and an unfold under autograd."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from leakgauge.engine.layerwise import convolved, kernel_gradients

TRIALS, IN, OUT = 3, 2, 4
CASES = [
    (kernel, stride, dilation, padding, samples)
    for kernel, stride, dilation, padding, samples in itertools.product(
        [(3, 3), (2, 3), (1, 1), (4, 1)], [(1, 1), (2, 2), (1, 2)], [(1, 1), (2, 2)], [0, 1], [1, 2]
    )
    if (stride, dilation) != ((1, 2), (2, 2))  # enough
]


def made(kernel, stride, dilation, padding, samples):
    """x (T*N, C, 8, 9) and a delta of the size that the convolution has."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(TRIALS * samples, IN, 8, 9, generator=g, dtype=torch.float64)
    size = F.conv2d(x, x.new_zeros(OUT, IN, *kernel), stride=stride, padding=padding, dilation=dilation).shape
    return x, torch.randn(size, generator=g, dtype=torch.float64)


def by_unfold(x: Tensor, delta: Tensor, kernel, stride, dilation, padding) -> Tensor:
    columns = F.unfold(x, kernel, dilation, padding, stride)  # (T*N, C*k*k, L)
    grouped = columns.view(TRIALS, -1, *columns.shape[1:])
    found = torch.einsum("tnol,tnpl->top", delta.flatten(2).view(TRIALS, -1, OUT, columns.shape[2]), grouped)
    return found.view(TRIALS, OUT, IN, *kernel)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_is_autograds_weight_gradient_of_each_trials_convolution(case):
    kernel, stride, dilation, padding, samples = case
    x, delta = made(*case)
    ours = kernel_gradients(F.pad(x, [padding] * 4), delta, kernel, stride, dilation, TRIALS)
    for t in range(TRIALS):
        own = slice(t * samples, (t + 1) * samples)
        weight = x.new_zeros(OUT, IN, *kernel).requires_grad_()
        out = F.conv2d(x[own], weight, stride=stride, padding=padding, dilation=dilation)
        (slow,) = torch.autograd.grad((out * delta[own]).sum(), weight)
        torch.testing.assert_close(ours[t], slow, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_its_derivative_is_that_of_an_unfold(case):
    kernel, stride, dilation, padding, _ = case
    fast, slow = ([t.clone().requires_grad_() for t in made(*case)] for _ in range(2))
    found = kernel_gradients(F.pad(fast[0], [padding] * 4), fast[1], kernel, stride, dilation, TRIALS)
    expected = by_unfold(*slow, kernel, stride, dilation, padding)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    pull = torch.randn(found.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for ours, theirs in zip(
        torch.autograd.grad(found, fast, pull), torch.autograd.grad(expected, slow, pull), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_its_derivative_stands_up_to_finite_differences():
    x, delta = (t[:, :, :5, :4].clone().requires_grad_() for t in made((3, 2), (2, 1), (1, 1), 0, 1))
    delta = torch.randn(TRIALS, OUT, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    delta.requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: kernel_gradients(a, b, (3, 2), (2, 1), (1, 1), TRIALS), (x, delta))


@pytest.mark.parametrize("wanted", [0, 1])
def test_one_derivative_can_be_had_without_the_other(wanted):
    tensors = list(made((3, 3), (1, 1), (1, 1), 0, 1))
    tensors[wanted].requires_grad_()
    found = kernel_gradients(*tensors, (3, 3), (1, 1), (1, 1), TRIALS)
    (slope,) = torch.autograd.grad(found.sum(), tensors[wanted])
    assert slope.shape == tensors[wanted].shape


def test_memory_order_and_views_do_not_matter():
    x, delta = made((3, 3), (2, 2), (1, 1), 0, 2)
    plain = kernel_gradients(x, delta, (3, 3), (2, 2), (1, 1), TRIALS)
    last = (t.contiguous(memory_format=torch.channels_last) for t in (x, delta))
    torch.testing.assert_close(kernel_gradients(*last, (3, 3), (2, 2), (1, 1), TRIALS), plain)
    wide = torch.randn(8, IN + 1, 10, 12, dtype=torch.float64)
    wide[1:7, 1:, 1:9, 2:11] = x
    torch.testing.assert_close(kernel_gradients(wide[1:7, 1:, 1:9, 2:11], delta, (3, 3), (2, 2), (1, 1), TRIALS), plain)


def test_one_channel_and_one_sample_are_no_special_case():
    x, delta = torch.randn(1, 1, 6, 6, dtype=torch.float64), torch.randn(1, 1, 4, 4, dtype=torch.float64)
    slow = F.conv2d(x, delta)  # a correlation of the input with the output gradient
    torch.testing.assert_close(kernel_gradients(x, delta, (3, 3), (1, 1), (1, 1), 1)[0], slow)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_convolution_by_products_is_torchs_own_up_to_its_third_derivative(case):
    kernel, stride, dilation, padding, _ = case
    x, delta = made(*case)
    weight = torch.randn(OUT, IN, *kernel, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    found = []
    for ours in (True, False):
        point, pull = x.clone().requires_grad_(), delta.clone().requires_grad_()
        if ours:
            out, _ = convolved(F.pad(point, [padding] * 4), weight, stride, dilation)
        else:
            out = F.conv2d(point, weight, stride=stride, padding=padding, dilation=dilation)
        (first,) = torch.autograd.grad((out.tanh() * pull).sum(), point, create_graph=True)
        second = torch.autograd.grad(first.pow(3).sum(), (point, pull), create_graph=True)
        third = torch.autograd.grad(sum(s.pow(2).sum() for s in second), (point, pull))
        found.append((out, first, *second, *third))
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)


def test_the_patches_of_a_convolution_serve_its_kernel_gradients():
    case = ((3, 3), (2, 2), (1, 1), 1, 2)
    x, delta = made(*case)
    padded = F.pad(x, [1] * 4)
    _, patches = convolved(padded, x.new_zeros(OUT, IN, 3, 3), (2, 2), (1, 1))
    both = [kernel_gradients(padded, delta, (3, 3), (2, 2), (1, 1), TRIALS, p) for p in (None, patches)]
    assert torch.equal(*both)
