"""What the server does with the clients' updates: a weighted mean, and the step it takes with it."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from leakgauge.errors import BadInput
from leakgauge.types import SharedUpdate


def weighted_mean(updates: SharedUpdate, weights: Sequence[float] | None = None) -> SharedUpdate:
    """One update (T = 1) from T clients' updates; weights are normalised to sum to one, equal by default."""
    share = torch.tensor(weights if weights is not None else [1.0] * updates.trials, dtype=torch.float64)
    fits = len(share) == updates.trials and bool(torch.isfinite(share).all() & (share >= 0).all())
    if not fits or float(share.sum()) <= 0:
        raise BadInput(
            "aggregation weights",
            allowed=f"{updates.trials} non-negative numbers, not all zero",
            got=weights,
            do="give one per client",
        )
    share = share / share.sum()

    def mean(tensor: Tensor) -> Tensor:
        """(T, ...) -> (1, ...); whole numbers, such as BatchNorm's batch counter, are averaged and rounded down."""
        return torch.einsum("t,t...->...", share.to(tensor.device), tensor.double())[None].to(tensor.dtype)

    return SharedUpdate(
        updates.kind, {n: mean(t) for n, t in updates.tensors.items()}, {n: mean(b) for n, b in updates.buffers.items()}
    )


def mean_of_rounds(updates: Sequence[SharedUpdate]) -> SharedUpdate:
    """The mean of several updates of the same T clients, trial by trial: fresh noise falls by the root of their number.

    Running statistics are those of the first.
    """
    first = updates[0]
    return first.map(lambda name, _: torch.stack([u.tensors[name] for u in updates]).mean(0))


def apply_update(model: nn.Module, update: SharedUpdate, lr: float = 1.0) -> nn.Module:
    """The next global model: weights - lr * gradient, or weights + delta; shared buffers replace the old ones.

    The given model stays untouched.
    """
    sign = -lr if update.kind == "gradient" else 1.0
    moved = copy.deepcopy(model)
    with torch.no_grad():
        for name, parameter in moved.named_parameters():
            if name in update.tensors:
                parameter.add_(update.tensors[name][0], alpha=sign)
        for name, buffer in moved.named_buffers():
            if name in update.buffers:
                buffer.copy_(update.buffers[name][0])
    return moved
