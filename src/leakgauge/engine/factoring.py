"""Matrices as products of two thin ones: which parameters are worth it, and the two ways to find the factors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def factors_length(shape: Sequence[int], rank: int) -> int:
    """Numbers in both factors of a parameter; a kernel (out, in, ...) is the matrix (out, in x ...)."""
    return rank * (shape[0] + torch.Size(shape[1:]).numel())


def is_factored(shape: Sequence[int], rank: int) -> bool:
    """Is a parameter of this shape sent as two factors? Not a vector, nor a matrix that is shorter as it is."""
    return len(shape) >= 2 and factors_length(shape, rank) < torch.Size(shape).numel()


def best_approximation(matrices: Tensor, rank: int) -> Tensor:
    """(T, m, n) -> the nearest matrices of this rank (Eckart and Young)."""
    left, values, right = torch.linalg.svd(matrices, full_matrices=False)
    nearest: Tensor = (left[..., :rank] * values[:, None, :rank]) @ right[:, :rank]
    return nearest


def power_approximation(matrices: Tensor, start: Tensor, iterations: int) -> Tensor:
    """(T, m, n) and a start (T, n, r) -> P P^T M, P the span of M (M^T M)^(iterations - 1) start."""
    columns = start
    basis = columns
    for _ in range(iterations):
        basis = torch.linalg.qr(matrices @ columns).Q  # (T, m, r)
        columns = matrices.mT @ basis
    return basis @ columns.mT
