"""The linear equations that one convolution of R-GAP leaves for what entered it.

Two kinds. The forward pass: W x = z - b. The weight's gradient: K x = g, where row (o, tap) of K holds the output
gradient of channel o at the pixels that this tap saw; it is the same for every input channel, so K is one small matrix
applied channel by channel. Pixels of the padding are zero and left out. All is in float64 on the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy import sparse
from scipy.linalg.lapack import dpstrf
from scipy.sparse.linalg import lsmr
from torch import Tensor, nn

_WORST = 1e6  # condition up to which the gradient's equations alone are trusted
_STOP = 1e-14  # relative, of the iterative solver
_MOST = 20_000  # its iterations
_LARGEST = 8192  # unknowns up to which a rank is counted: the matrix takes half a gigabyte
_SAME = 1e-7  # singular values below this, relative to the largest, count as zero (their squares are rounding)


@dataclass(frozen=True)
class Rank:
    """What the equations of one layer determine. `rank` is None where the layer is too large to count."""

    layer: str
    unknowns: int
    equations: int
    rank: int | None

    @property
    def deficient(self) -> bool:
        return self.rank is not None and self.rank < self.unknowns

    def __str__(self) -> str:
        known = "too large to count" if self.rank is None else f"{self.rank:,} of {self.unknowns:,} numbers determined"
        verdict = ": rank deficient, its input stays hidden" if self.deficient else ""
        return f"{self.layer}: {known} ({self.equations:,} equations){verdict}"


def gradient_rows(conv: nn.Conv2d, slope: Tensor, size: tuple[int, int]) -> Tensor:
    """K for one input channel: (out x taps, H x W). `slope` is the loss's gradient in the output, (out, H', W')."""
    pixels = size[0] * size[1]
    seen = _pixels_seen(conv, size)  # (taps, positions)
    out, taps = slope.shape[0], len(seen)
    rows = slope.new_zeros(out, taps, pixels + 1)
    rows.scatter_add_(2, seen.expand(out, -1, -1), slope.flatten(1)[:, None].expand(-1, taps, -1).contiguous())
    return rows[..., 1:].reshape(out * taps, pixels)


def forward_rows(conv: nn.Conv2d, size: tuple[int, int]) -> sparse.csr_array:
    """W: (out x positions, in x H x W), sparse."""
    pixels, seen = size[0] * size[1], _pixels_seen(conv, size)
    weight = conv.weight.detach().flatten(2)  # (out, in, taps)
    out, channels, taps = weight.shape
    positions = seen.shape[1]
    full = (out, channels, taps, positions)
    rows = (torch.arange(out)[:, None] * positions + torch.arange(positions))[:, None, None].expand(full)
    columns = (torch.arange(channels)[:, None, None] * pixels + seen - 1)[None].expand(full)
    values, real = weight[..., None].expand(full), (seen > 0).expand(full)
    entries = (values[real].numpy(), (rows[real].numpy(), columns[real].numpy()))
    return sparse.csr_array(entries, shape=(out * positions, channels * pixels))


def solve_convolution(
    conv: nn.Conv2d, forward: sparse.csr_array, z: Tensor, slope: Tensor, gradient: Tensor, size: tuple[int, int]
) -> Tensor:
    """What entered the convolution, (in, H, W), by least squares; of all solutions the one of least norm.

    z and slope are (out, H', W'), gradient (out, in, kH, kW). The gradient's equations alone are used where they
    suffice: they do not inherit the errors of the layers behind.
    """
    channels = gradient.shape[1]
    own = gradient_rows(conv, slope, size)
    wanted = gradient.flatten(2).transpose(1, 2).reshape(-1, channels)  # (out x taps, in)
    if well_posed(own):
        alone = np.linalg.lstsq(own.numpy(), wanted.numpy(), rcond=None)[0]  # torch's is not the same twice
        return torch.from_numpy(alone).T.reshape(channels, *size)
    scale = balance(own, forward, channels)
    stacked = sparse.vstack([sparse.kron(sparse.eye_array(channels), scale * own.numpy()), forward], format="csr")
    offset = 0 if conv.bias is None else conv.bias.detach()[:, None, None]
    right = np.concatenate([(scale * wanted.T).reshape(-1).numpy(), (z - offset).reshape(-1).numpy()])
    found = lsmr(stacked, right, atol=_STOP, btol=_STOP, conlim=0, maxiter=_MOST)[0]
    return torch.from_numpy(found).reshape(channels, *size)


def rank_of_convolution(
    name: str, conv: nn.Conv2d, forward: sparse.csr_array, slope: Tensor, size: tuple[int, int]
) -> Rank:
    """How many of the unknowns the equations determine, for this output gradient."""
    channels, pixels = conv.in_channels, size[0] * size[1]
    own = gradient_rows(conv, slope, size)
    unknowns, equations = channels * pixels, len(own) * channels + forward.shape[0]
    if well_posed(own):
        return Rank(name, unknowns, equations, unknowns)
    if unknowns > _LARGEST:
        return Rank(name, unknowns, equations, None)
    own = balance(own, forward, channels) * own
    products = (forward.T @ forward).toarray()
    block = (own.T @ own).numpy()
    for c in range(channels):
        products[c * pixels : (c + 1) * pixels, c * pixels : (c + 1) * pixels] += block
    # Cholesky with pivoting reveals the rank of the squares at a tenth of what singular values cost.
    rank = dpstrf(products, tol=_SAME**2 * float(products.diagonal().max()) * unknowns, overwrite_a=True)[2]
    return Rank(name, unknowns, equations, int(rank))


def well_posed(own: Tensor) -> bool:
    """Do the gradient's equations of one channel determine it by themselves, with room for rounding?"""
    if own.shape[0] < own.shape[1]:
        return False
    sizes = torch.linalg.svdvals(own)
    return bool(sizes[-1] * _WORST > sizes[0])


def balance(own: Tensor, forward: sparse.csr_array, channels: int) -> float:
    """The factor that gives both kinds of equations the same weight; gradients shrink from layer to layer."""
    size = float(own.norm()) * channels**0.5
    return float(np.linalg.norm(forward.data)) / size if size > 0 else 0.0


def _pixels_seen(conv: nn.Conv2d, size: tuple[int, int]) -> Tensor:
    """Which pixel (from 1; 0 is padding) each tap sees at each position: (taps, positions)."""
    assert not isinstance(conv.padding, str)
    numbered = torch.arange(1, size[0] * size[1] + 1, dtype=torch.float64).view(1, 1, *size)
    return nn.functional.unfold(numbered, conv.kernel_size, conv.dilation, conv.padding, conv.stride)[0].long()
