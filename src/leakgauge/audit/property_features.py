"""What an update looks like to a classifier: the sizes of its weight gradients, pooled to a few thousand numbers.

The largest entries are pooled after the released code of Melis et al. 2019. It writes a dense layer's matrix inputs x
outputs and takes the largest entry along the last axis, so that one number per input is left; ours is outputs x inputs,
and pooled along the first. Energies are ours: the largest of many entries is mostly noise once noise is added, while a
mean of squares averages it out.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

LARGEST = 5000  # entries of a matrix that are kept as they are
POOLING = ("best", "both", "inputs", "energy")


def candidates(pooling: str) -> tuple[str, ...]:
    """The ways of pooling that are tried: "best" stands for two, of which the attacker keeps what suits its updates."""
    return ("both", "energy") if pooling == "best" else (pooling,)


def update_features(tensors: Mapping[str, Tensor], pooling: str) -> Tensor:
    """Update tensors name -> (T, *parameter) as rows (T, F) of length one.

    "both" and "inputs": biases and norms play no part, a convolution's kernel becomes its largest tap, and a matrix of
    more than 5000 entries the largest entry of each column ("inputs", as published) or of each column and each row
    ("both"): the rows are the layer's outputs, which in the last layer are the classes. A convolution between so many
    channels is left out as published, and pooled like any other matrix under "both".

    "energy": the root of the mean square of each tensor and, for matrices and kernels, of each column and row.
    """
    parts = [part for tensor in tensors.values() for part in _pooled(tensor, pooling)]
    if not parts:  # a model without any matrix: its vectors are all there is
        parts = [tensor.abs().flatten(1) for tensor in tensors.values()]
    rows = torch.cat(parts, dim=1).float()
    lengths: Tensor = rows.norm(dim=1, keepdim=True)
    return rows / lengths.clamp_min(torch.finfo(rows.dtype).tiny)


def _pooled(tensor: Tensor, pooling: str) -> list[Tensor]:
    """(T, *parameter) -> pieces (T, f); none for what plays no part."""
    return _energies(tensor) if pooling == "energy" else _largest(tensor, pooling)


def _energies(tensor: Tensor) -> list[Tensor]:
    whole = tensor.square().flatten(1).mean(1, keepdim=True).sqrt()
    if tensor.dim() < 3:
        return [whole]
    matrix = tensor.square()
    matrix = matrix.flatten(3).mean(3) if tensor.dim() > 3 else matrix  # (T, outputs, inputs)
    return [whole, matrix.mean(1).sqrt(), matrix.mean(2).sqrt()]


def _largest(tensor: Tensor, pooling: str) -> list[Tensor]:
    """(T, *parameter) -> pieces (T, f); none for what plays no part."""
    if tensor.dim() < 3:  # biases, and BatchNorm's scale and shift
        return []
    is_kernel = tensor.dim() > 3
    matrix = tensor.abs()
    matrix = matrix.flatten(3).amax(3) if is_kernel else matrix  # (T, outputs, inputs)
    if matrix[0].numel() <= LARGEST:
        return [matrix.flatten(1)]
    if pooling == "both":
        return [matrix.amax(1), matrix.amax(2)]
    return [] if is_kernel else [matrix.amax(1)]
