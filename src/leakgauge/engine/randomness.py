"""Randomness comes in by the door: every draw names its trial's seed and its role.

A trial therefore gets the same numbers alone or among hundreds, on any device (draws are made on the CPU).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def generator(seed: int, role: str) -> torch.Generator:
    """A generator of its own for each (seed, role), so that an attack never shares a defense's noise."""
    digest = hashlib.sha256(f"{seed}/{role}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)


def per_trial(seeds: Sequence[int], role: str, draw: Callable[[torch.Generator], Tensor]) -> Tensor:
    """Stack one draw per trial: (T, ...)."""
    return torch.stack([draw(generator(seed, role)) for seed in seeds])


def normal(seeds: Sequence[int], role: str, shape: Sequence[int]) -> Tensor:
    """(T, *shape) independent N(0, 1)."""
    return per_trial(seeds, role, lambda g: torch.randn(tuple(shape), generator=g))


def uniform(seeds: Sequence[int], role: str, shape: Sequence[int]) -> Tensor:
    """(T, *shape) independent U[0, 1)."""
    return per_trial(seeds, role, lambda g: torch.rand(tuple(shape), generator=g))


def derived_seed(seed: int, role: str) -> int:
    """Another seed for what is drawn in this role by code that takes a seed."""
    return int(torch.randint(2**31 - 1, (), generator=generator(seed, role)))
