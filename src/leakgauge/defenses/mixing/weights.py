"""Mixing of local updates before others try them (the fusion of FedBoosting). It is not differential privacy.

Ren 2022, section 4.2.3 and Eq. 4.5: the model that is tried for client i moves by a share of its own update and by a
little of everybody else's. The text has the server draw those shares in private, with the own one always the largest;
the released code uses 0.9 for everybody. Three ways, by name:

  random  the own share of each mixture is drawn between `least` and one, the rest goes to the others in equal parts;
  free    the own share likewise, the rest in parts that are drawn too (evenly over all ways to share it out);
  fixed   the own share is `least`, in every mixture and every round.

Whoever sees all T mixtures and knows the weights solves T equations for T updates: `unmixed`. What a fellow client
makes of them without the weights stands in `guessing_weights`.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from leakgauge.errors import BadInput
from leakgauge.types import SharedUpdate

FUSINGS = ("random", "free", "fixed")
_LEAST = 0.5  # a drawn own share is at least that, so that no other share of its mixture is larger


def check_fusing(owner: str, share: float, fusing: str) -> None:
    """Shares that are drawn must keep the own one the largest."""
    if fusing != "fixed" and share < _LEAST:
        raise BadInput(
            owner,
            allowed=f"at least {_LEAST:g} where shares are drawn, so that the own one is the largest",
            got=share,
            do="raise it, or set fusing=fixed",
        )


def mixing_matrix(clients: int, share: float) -> Tensor:
    """(T, T) float64 of `fixed`: row i says how much of each update is in mixture i; rows add up to one."""
    if clients == 1:
        return torch.ones(1, 1, dtype=torch.float64)
    return evenly_spread(torch.full((clients,), float(share), dtype=torch.float64))


def fusing_weights(clients: int, share: float, fusing: str, g: torch.Generator) -> Tensor:
    """(T, T) float64: row i says how much of each update is in mixture i; rows add up to one."""
    if fusing == "fixed" or clients == 1:
        return mixing_matrix(clients, share)
    own = share + (1 - share) * torch.rand(clients, generator=g, dtype=torch.float64)
    if fusing == "random":
        return evenly_spread(own)
    parts = -torch.rand(clients, clients, generator=g, dtype=torch.float64).clamp(min=1e-12).log()
    parts.fill_diagonal_(0)
    return torch.diag(own) + parts / parts.sum(1, keepdim=True) * (1 - own)[:, None]


def evenly_spread(own: Tensor) -> Tensor:
    """(..., T) own shares -> (..., T, T), the rest of each row in equal parts: the form of Eq. 4.5. T is 2 or more."""
    clients = own.shape[-1]
    rest = (1 - own) / (clients - 1)
    return torch.diag_embed(own - rest) + rest[..., None].expand(*own.shape, clients)


def mixed(updates: SharedUpdate, weights: Tensor | None) -> SharedUpdate:
    """T updates -> the T mixtures that are tried instead; running statistics too, counters as they are."""
    return updates if weights is None else along_clients(updates, weights[None])


def unmixed(mixtures: SharedUpdate, weights: Tensor) -> SharedUpdate:
    """What a client that has all mixtures and knows the weights knows: every single update."""
    return along_clients(mixtures, torch.linalg.inv(weights)[None])


def along_clients(updates: SharedUpdate, weights: Tensor) -> SharedUpdate:
    """(G x T, ...) updates of G groups and their weights (G, R, T) -> (G x R, ...)."""
    groups, rows, clients = weights.shape

    def combined(tensor: Tensor) -> Tensor:
        grouped = tensor.reshape(groups, clients, *tensor.shape[1:])
        if not tensor.is_floating_point():
            return grouped[:, :rows].flatten(0, 1)
        out = torch.einsum("gij,gj...->gi...", weights.to(tensor.device), grouped.double())
        return out.flatten(0, 1).to(tensor.dtype)

    buffers = {name: combined(b) for name, b in updates.buffers.items()}
    return replace(updates.map(lambda _, t: combined(t)), buffers=buffers)
