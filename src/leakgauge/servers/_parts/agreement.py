"""Which candidates say the same: several rows that give one and the same ratio were each left by one sample."""

from __future__ import annotations

import torch
from torch import Tensor

from leakgauge.engine.randomness import generator

_DIRECTIONS = 32  # candidates are compared along these: their distance to a tenth, at any size of the pictures
_ROUNDING = 64  # in units of the precision: by how much the ratios of two rows over one sample may differ


def agreement(candidates: Tensor, valid: Tensor, error: Tensor) -> Tensor:
    """(T, M, M) bool: which of the candidates (T, M, d) that are valid (T, M) are equal up to rounding.

    `error` (T, M) is by how much an entry of a candidate may be off besides its own precision.
    """
    size = candidates.shape[2]
    directions = torch.randn(size, _DIRECTIONS, generator=generator(0, "agreement"), dtype=torch.float64)
    seen = torch.where(valid[..., None], candidates, 0.0) @ directions.to(candidates)  # (T, M, 32)
    distance = torch.cdist(seen, seen, compute_mode="donot_use_mm_for_euclid_dist")
    precision = _ROUNDING * torch.finfo(candidates.dtype).eps
    length = seen.norm(dim=2)
    allowed = precision * torch.maximum(length[:, :, None], length[:, None])
    allowed = allowed + (size * _DIRECTIONS) ** 0.5 * (error[:, :, None] + error[:, None])
    near: Tensor = distance <= allowed
    return near & valid[:, :, None] & valid[:, None]


def strongest_of_each(agreed: Tensor, strength: Tensor) -> Tensor:
    """(T, M) bool: no candidate that agrees with it has a larger |strength| (T, M), or stands earlier at the same."""
    size = strength.abs()
    place = torch.arange(size.shape[1], device=size.device)
    earlier = place[None, :] < place[:, None]  # (M, M): column before row
    stronger = (size[:, None] > size[:, :, None]) | ((size[:, None] == size[:, :, None]) & earlier)
    return ~(agreed & stronger).any(2)
