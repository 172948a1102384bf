"""How far a trial's gradient g' is from the observed g, over all tensors and entries r = g' - g.

l2      sum r^2                       what DLG minimises; the likelihood under Gaussian noise
l1      sum sqrt(r^2 + e^2) - e       the likelihood under Laplace noise, its corner rounded
cosine  1 - cosine(g', g)             blind to scale (Inverting Gradients)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

_CORNER = 1e-4  # e of the rounded l1


def flat(tensors: Mapping[str, Tensor], names: Iterable[str]) -> Tensor:
    """The named tensors of each trial as one row: (T, P)."""
    return torch.cat([tensors[name].flatten(1) for name in names], 1)


def distance_between(mine: Tensor, observed: Tensor, distance: str, known: Tensor | None = None) -> Tensor:
    """Distance per trial (T,) of rows (T, P); entries where `known` is False are left out."""
    if distance == "cosine":
        if known is not None:
            mine = mine * known
        inner, own, other = ((a * b).sum(1) for a, b in ((mine, observed), (mine, mine), (observed, observed)))
        return 1 - inner / (own * other).clamp_min(1e-30).sqrt()
    residual = mine - observed
    if known is not None:
        residual = residual * known
    if distance == "l2":
        return (residual * residual).sum(1)
    return ((residual * residual + _CORNER**2).sqrt() - _CORNER).sum(1)


def gradient_distance(
    gradients: Mapping[str, Tensor],
    observed: Mapping[str, Tensor],
    distance: str = "l2",
    known: Mapping[str, Tensor] | None = None,
) -> Tensor:
    """Distance per trial (T,) over all tensors that were observed."""
    names = list(observed)
    mask = None if known is None else flat(known, names)
    return distance_between(flat(gradients, names), flat(observed, names), distance, mask)
