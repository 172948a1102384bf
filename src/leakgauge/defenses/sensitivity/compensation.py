"""Noise taken out of an averaged update by random matrix theory: what the server of `sensitivity` does.

Wang et al., INFOCOM 2022. The update is laid out as a v x w matrix. Were it noise of variance s^2 alone, the
eigenvalues of its columns' covariance would lie between s^2 (1 - 1/sqrt(Q))^2 and s^2 (1 + 1/sqrt(Q))^2, Q = v / w
(Marchenko and Pastur). The paper has two readings of what to keep. Its procedure calls the eigenvalues inside the band
noise and keeps the directions of all others, below and above it (`keep="outside"`). Its motivation keeps those above
the largest eigenvalue of noise (`keep="above"`). In a matrix of signal plus noise little lies below the band.

Where we depart. The printed variance m d/s (sum of weights) s^2 is that of a *sum* of m clients' noise, and does not
depend on how the weights are spread. That of the weighted mean, which the server has here, is d/s (sum of squared
weights) s^2, for equal weights smaller by m^2. `rule="printed"` is the former: with `keep="outside"`, as in the
released code, a mean then lies below the band and comes back as it was. A number of entries with no divisor near the
wanted one leaves a matrix of one or two columns, in which nothing can be told apart: zeros are added then, unless `pad`
is false. The covariance is centred and the projection is not, as in the paper.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

KEEPS = ("outside", "above")
VARIANCES = ("weights", "printed")


def layout(entries: int, q: float, pad: bool = True) -> tuple[int, int]:
    """(v, w), v the smallest divisor of the entries that is at least sqrt(q entries).

    If that is more than twice as many, v = sqrt(q entries) rounded up, and v w is a little more than the entries.
    """
    least = min(math.sqrt(q * entries), entries)
    small = [d for d in range(1, math.isqrt(entries) + 1) if entries % d == 0]
    v = min(d for d in (*small, *(entries // d for d in small)) if d >= least)
    if v > 2 * least and pad:
        v = math.ceil(least)
    return v, -(-entries // v)


def mean_variance(std: float, share: float, weights: Sequence[float], rule: str = "weights") -> float:
    """Variance of an entry of sum_i w_i g_i where each client puts noise on this share of its entries."""
    if rule == "printed":
        return len(weights) * share * sum(weights) * std**2
    return share * sum(w * w for w in weights) * std**2


def band(variance: float, ratio: float) -> tuple[float, float]:
    """Where the eigenvalues of pure noise lie; ratio is v / w."""
    return variance * (1 - ratio**-0.5) ** 2, variance * (1 + ratio**-0.5) ** 2


def eigen(rows: Tensor, q: float, pad: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """(T, P) -> the matrices (T, v, w), their columns' covariance's eigenvalues (T, w) and directions (T, w, w)."""
    v, w = layout(rows.shape[1], q, pad)
    matrix = nn.functional.pad(rows.double(), (0, v * w - rows.shape[1])).reshape(-1, v, w)
    centred = matrix - matrix.mean(1, keepdim=True)
    values, directions = torch.linalg.eigh(centred.transpose(1, 2) @ centred / max(1, v - 1))
    return matrix, values, directions


def compensated(rows: Tensor, variance: float, q: float, keep: str = "outside", pad: bool = True) -> Tensor:
    """(T, P) without the directions that noise of this variance explains."""
    if variance == 0:
        return rows
    matrix, values, directions = eigen(rows, q, pad)
    low, high = band(variance, matrix.shape[1] / matrix.shape[2])
    kept = (values < low) | (values > high) if keep == "outside" else values > high
    directions = directions * kept[:, None].to(directions)
    left = matrix @ directions @ directions.transpose(1, 2)
    return left.flatten(1)[:, : rows.shape[1]].to(rows.dtype)
