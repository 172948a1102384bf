"""How updates are shortened: sketches by public linear maps, and matrices as products of two thin ones.

A sketch shortens a row of numbers, and the server stretches it again. For a map S from p to m numbers that is drawn so
that E[S^T S] = I, the server's estimate S^T S x is unbiased. Both ends draw S from the same public number, so only S x
travels.

count      entry i is added with a random sign to a random one of m buckets (Charikar et al. 2002)
rotation   random signs, a Hadamard transform, and m of the coordinates at random (Konecny et al. 2016, section 4)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from leakgauge.engine.randomness import generator

METHODS = ("count", "rotation")
_AXIS_BITS = 6  # a transform of 2^k entries runs as products with matrices of at most 64 x 64

Map = Callable[[Tensor], Tensor]  # (T, p) -> (T, p)


def sketch_length(entries: int, size: float) -> int:
    """How many numbers a sketch of `entries` has: this share of them, at least one."""
    return max(1, math.ceil(size * entries - 1e-9))  # 0.07 x 100 is 7.000000000000001 in floating point


def there_and_back(entries: int, size: float, method: str, seed: int, role: str, like: Tensor) -> Map:
    """x -> S^T S x on rows of `entries` numbers, with S drawn from the public `seed`; differentiable in x."""
    length = sketch_length(entries, size)
    draw = _counting if method == "count" else _rotating
    return draw(entries, length, generator(seed, f"sketch/{method}/{role}"), like)


def _counting(entries: int, length: int, drawn: torch.Generator, like: Tensor) -> Map:
    buckets = torch.randint(length, (entries,), generator=drawn).to(like.device)
    signs = _signs(entries, drawn, like)

    def applied(rows: Tensor) -> Tensor:
        filled = rows.new_zeros(len(rows), length).index_add(1, buckets, rows * signs)
        return filled[:, buckets] * signs

    return applied


def _rotating(entries: int, length: int, drawn: torch.Generator, like: Tensor) -> Map:
    bits = max(0, (entries - 1).bit_length())
    whole = 2**bits
    signs = _signs(whole, drawn, like)
    chosen = torch.zeros(whole).index_fill(0, torch.randperm(whole, generator=drawn)[:length], whole / length).to(like)

    def applied(rows: Tensor) -> Tensor:
        padded = torch.nn.functional.pad(rows, (0, whole - entries))
        sampled = hadamard(padded * signs) * chosen
        return (hadamard(sampled) * signs)[:, :entries]

    return applied


def hadamard(rows: Tensor) -> Tensor:
    """The orthonormal Walsh-Hadamard transform of each row (T, 2^k); its own inverse."""
    bits = rows.shape[1].bit_length() - 1
    axes = [_AXIS_BITS] * (bits // _AXIS_BITS) + ([bits % _AXIS_BITS] if bits % _AXIS_BITS else [])
    cube = rows.reshape(len(rows), *(2**axis for axis in axes))
    for place, axis in enumerate(axes, start=1):
        cube = torch.movedim(torch.movedim(cube, place, -1) @ _matrix(axis, rows), -1, place)
    return cube.reshape(rows.shape)


def _matrix(bits: int, like: Tensor) -> Tensor:
    """(2^bits, 2^bits), symmetric, rows of length one."""
    matrix = like.new_ones(1, 1)
    step = like.new_tensor([[1.0, 1.0], [1.0, -1.0]]) / math.sqrt(2)
    for _ in range(bits):
        matrix = torch.kron(matrix, step)
    return matrix


def _signs(count: int, drawn: torch.Generator, like: Tensor) -> Tensor:
    return (2 * torch.randint(2, (count,), generator=drawn) - 1).to(like)


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
