"""Which reconstruction belongs to which record: the assignment of least total MSE, per trial.

A gradient does not know the order of its batch, so a score without this step measures the order.
"""

from __future__ import annotations

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from leakgauge.errors import BadInput

# Costs are capped here: far above any error of values in [0, 1], yet small enough that float64 still tells
# good pairs apart beside it. NaN and infinite reconstructions get it too, so that they take the leftovers.
_HOPELESS = 1e6


def pairwise_mse(truth: Tensor, recon: Tensor) -> Tensor:
    """(T, N, *shape) and (T, M, *shape) -> (T, N, M), float64, capped and finite."""
    # differences, not the faster ||a||^2 + ||b||^2 - 2ab: that one cancels for good reconstructions
    distance = torch.cdist(
        truth.flatten(2).double(), recon.flatten(2).double(), compute_mode="donot_use_mm_for_euclid_dist"
    )
    cost = distance.square() / max(truth.shape[2:].numel(), 1)
    return cost.nan_to_num(nan=_HOPELESS, posinf=_HOPELESS).clamp(max=_HOPELESS)


def assign(truth: Tensor, recon: Tensor, claimed: Tensor | None = None) -> Tensor:
    """The permutation (T, N): `recon[t, perm[t, i]]` is the one that matches `truth[t, i]`.

    A record that is not `claimed` (T, N) takes what the others leave: it must not take a record from a claim about it.
    """
    if truth.shape != recon.shape:
        allowed = f"shaped {tuple(truth.shape)} as the truth (trials, records, sample)"
        do = "reconstruct as many records as the update holds"
        raise BadInput("reconstruction", allowed=allowed, got=tuple(recon.shape), do=do)
    if truth.shape[0] == 0 or truth.shape[1] <= 1:  # nothing to choose
        return torch.zeros(truth.shape[:2], dtype=torch.long, device=truth.device)
    costs = pairwise_mse(truth, recon)
    if claimed is not None:
        costs = costs * claimed[:, None]
    columns = [torch.as_tensor(linear_sum_assignment(cost)[1]) for cost in costs.cpu().numpy()]  # rows come sorted
    return torch.stack(columns).to(truth.device)


def reorder(recon: Tensor, permutation: Tensor) -> Tensor:
    """(T, N, ...) in the order of a permutation (T, N)."""
    trials = torch.arange(recon.shape[0], device=recon.device).unsqueeze(1)  # (T, 1)
    return recon[trials, permutation]
