"""Mixing of local updates before others try them (the fusion of FedBoosting). It is not differential privacy.

The model that is tried for client i moves by a share of its own update and a little of everybody else's. That hides
nothing from who sees all T mixtures: they are T equations in T unknowns, and `unmixed` solves them.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from leakgauge.types import SharedUpdate


def mixing_matrix(clients: int, share: float) -> Tensor:
    """(T, T) float64: row i says how much of each update is in mixture i; rows add up to one."""
    if clients == 1:
        return torch.ones(1, 1, dtype=torch.float64)
    rest = (1 - share) / (clients - 1)
    return torch.full((clients, clients), rest, dtype=torch.float64) + (share - rest) * torch.eye(
        clients, dtype=torch.float64
    )


def mixed(updates: SharedUpdate, share: float) -> SharedUpdate:
    """T updates -> the T mixtures that are tried instead; running statistics too, counters as they are."""
    if share == 1:
        return updates
    return _along_clients(updates, mixing_matrix(updates.trials, share))


def unmixed(mixtures: SharedUpdate, share: float) -> SharedUpdate:
    """What a client that has received all mixtures knows: every single update."""
    return _along_clients(mixtures, torch.linalg.inv(mixing_matrix(mixtures.trials, share)))


def _along_clients(updates: SharedUpdate, matrix: Tensor) -> SharedUpdate:
    def combined(tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point():
            return tensor
        return torch.einsum("ij,j...->i...", matrix.to(tensor.device), tensor.double()).to(tensor.dtype)

    buffers = {name: combined(b) for name, b in updates.buffers.items()}
    return replace(updates.map(lambda _, t: combined(t)), buffers=buffers)
