"""How far a trial's gradient g' is from the observed g, over all tensors and entries r = g' - g.

l2      sum r^2                       what DLG minimises; the likelihood under Gaussian noise
l1      sum sqrt(r^2 + e^2) - e       the likelihood under Laplace noise, its corner rounded
cosine  1 - cosine(g', g)             blind to scale (Inverting Gradients)
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

_CORNER = 1e-4  # e of the rounded l1


def gradient_distance(
    gradients: Mapping[str, Tensor],
    observed: Mapping[str, Tensor],
    distance: str = "l2",
    known: Mapping[str, Tensor] | None = None,
) -> Tensor:
    """Distance per trial (T,) over all tensors; entries where `known` is False are left out."""
    if distance == "cosine":
        return _cosine_distance(gradients, observed, known)
    total: Tensor | None = None
    for name, target in observed.items():
        residual = gradients[name] - target
        if known is not None:
            residual = residual * known[name]
        cost = residual**2 if distance == "l2" else (residual**2 + _CORNER**2).sqrt() - _CORNER
        part = cost.flatten(1).sum(1)
        total = part if total is None else total + part
    assert total is not None
    return total


def _cosine_distance(
    gradients: Mapping[str, Tensor], observed: Mapping[str, Tensor], known: Mapping[str, Tensor] | None
) -> Tensor:
    """1 - cosine per trial, inner product and norms over all tensors together."""
    sums: list[Tensor] = []
    for name, target in observed.items():
        mine = gradients[name] if known is None else gradients[name] * known[name]
        parts = [(a * b).flatten(1).sum(1) for a, b in ((mine, target), (mine, mine), (target, target))]
        sums = [s + p for s, p in zip(sums, parts, strict=True)] if sums else parts
    inner, own, other = sums
    return torch.ones_like(inner) - inner / (own * other).clamp_min(1e-30).sqrt()
