"""The equations of a convolution, against autograd, dense linear algebra and a rank counted by hand."""

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import nn

from leakgauge.attacks import rgap
from leakgauge.attacks.rgap import Rank, balance, forward_rows, gradient_rows, rank_of_convolution, solve_convolution

SIZE = (7, 6)
CONVOLUTIONS = {
    "plain": {"kernel_size": 3},
    "strided": {"kernel_size": 3, "stride": 2, "padding": 1},
    "even": {"kernel_size": 4, "stride": 2, "padding": 2, "bias": False},
    "dilated": {"kernel_size": 3, "dilation": 2, "padding": (2, 1)},
}


def passed(out=4, channels=2, size=SIZE, **fields):
    """A convolution, what entered it, what came out, the loss's gradient there, and the weight's gradient."""
    g = torch.Generator().manual_seed(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        conv = nn.Conv2d(channels, out, **fields).double()
    x = torch.rand(1, channels, *size, generator=g, dtype=torch.float64)
    z = conv(x)
    slope = torch.randn(z.shape, generator=g, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(z, conv.weight, slope)
    return conv, x[0], z[0].detach(), slope[0], gradient


@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_both_kinds_of_equations_hold_at_the_truth(kind):
    conv, x, z, slope, gradient = passed(**CONVOLUTIONS[kind])
    offset = 0 if conv.bias is None else conv.bias.detach()[:, None, None]
    forward = torch.from_numpy(forward_rows(conv, SIZE) @ x.flatten().numpy())
    torch.testing.assert_close(forward, (z - offset).flatten(), rtol=0, atol=1e-12)
    own = gradient_rows(conv, slope, SIZE) @ x.flatten(1).T  # (out x taps, in)
    torch.testing.assert_close(own, gradient.flatten(2).transpose(1, 2).flatten(0, 1), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", CONVOLUTIONS)
@pytest.mark.parametrize("out", [1, 2, 12])
def test_the_solution_is_the_least_squares_one_of_least_norm(kind, out):
    conv, x, z, slope, gradient = passed(out=out, **CONVOLUTIONS[kind])
    forward = forward_rows(conv, SIZE)
    found = solve_convolution(conv, forward, z, slope, gradient, SIZE)
    own = gradient_rows(conv, slope, SIZE)
    dense = np.vstack([np.kron(np.eye(2), balance(own, forward, 2) * own.numpy()), forward.toarray()])
    expected = np.linalg.pinv(dense, rcond=1e-10) @ (dense @ x.flatten().numpy())
    np.testing.assert_allclose(found.flatten().numpy(), expected, atol=1e-6)
    rank = rank_of_convolution("conv", conv, forward, slope, SIZE)
    assert (rank.unknowns, rank.equations) == (x.numel(), len(dense))
    assert rank.rank == np.linalg.matrix_rank(dense, tol=1e-9)
    if not rank.deficient:
        torch.testing.assert_close(found, x, rtol=0, atol=1e-6)


def test_dependencies_between_the_two_kinds_are_not_counted_twice():
    """Row (o, tap) weighted by the kernel of o' equals row o' of the forward pass weighted by the gradient of o."""
    conv, _, _, slope, _ = passed(out=3, kernel_size=3, bias=False)
    own, forward = gradient_rows(conv, slope, SIZE), forward_rows(conv, SIZE).toarray().reshape(3, -1, 2, 42)
    kernels = conv.weight.detach().flatten(2)  # (out, in, taps)
    for o in range(3):
        for other in range(3):
            by_gradient = torch.einsum("ct,tp->cp", kernels[other], own.reshape(3, 9, 42)[o])
            by_forward = np.einsum("n,ncp->cp", slope[o].flatten().numpy(), forward[other])
            np.testing.assert_allclose(by_gradient.numpy(), by_forward, atol=1e-12)


def test_a_layer_too_large_to_count_says_so(monkeypatch):
    monkeypatch.setattr(rgap, "_LARGEST", 10)
    conv, _, _, slope, _ = passed(out=1, kernel_size=3)
    rank = rank_of_convolution("conv", conv, forward_rows(conv, SIZE), slope, SIZE)
    assert rank.rank is None
    assert not rank.deficient
    assert str(rank) == "conv: too large to count (38 equations)"


def test_a_rank_reads_as_a_sentence():
    assert str(Rank("conv2", 3468, 3780, 3188)) == (
        "conv2: 3,188 of 3,468 numbers determined (3,780 equations): rank deficient, its input stays hidden"
    )
    assert str(Rank("fc", 10, 20, 10)) == "fc: 10 of 10 numbers determined (20 equations)"


def test_no_gradient_at_all_leaves_the_forward_pass():
    conv, x, z, slope, gradient = passed(out=12, kernel_size=3, padding=1)
    forward = forward_rows(conv, SIZE)
    assert isinstance(forward, sparse.csr_array)
    found = solve_convolution(conv, forward, z, 0 * slope, 0 * gradient, SIZE)
    torch.testing.assert_close(found, x, rtol=0, atol=1e-6)
