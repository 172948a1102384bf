"""How far a trial's gradient g' is from the observed g, over all tensors and entries r = g' - g.

l2      sum r^2                       what DLG minimises; the likelihood under Gaussian noise
l1      sum sqrt(r^2 + e^2) - e       the likelihood under Laplace noise, its corner rounded
cosine  1 - cosine(g', g)             blind to scale (Inverting Gradients)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

_CORNER = 1e-4  # e of the rounded l1


def rows_of(tensors: Mapping[str, Tensor], names: Iterable[str]) -> list[Tensor]:
    """The named tensors of each trial as rows (T, p).

    On a GPU all of them as one, so that few launches do; on a CPU each for itself, because large temporaries are slow.
    """
    rows = [tensors[name].flatten(1) for name in names]
    return [torch.cat(rows, 1)] if rows[0].is_cuda else rows


def distance_between(
    mine: Sequence[Tensor], observed: Sequence[Tensor], distance: str, known: Sequence[Tensor] | None = None
) -> Tensor:
    """Distance per trial (T,) between two lists of rows; entries where `known` is False are left out."""
    if known is not None:
        mine = [row * mask for row, mask in zip(mine, known, strict=True)]
    pairs = list(zip(mine, observed, strict=True))
    if distance == "cosine":
        inner = _total((a * b).sum(1) for a, b in pairs)
        own = _total((a * a).sum(1) for a, _ in pairs)
        other = _total((b * b).sum(1) for _, b in pairs)
        return 1 - inner / (own * other).clamp_min(1e-30).sqrt()
    masks: Sequence[Tensor | None] = [None] * len(pairs) if known is None else known
    residuals = (a - (b if mask is None else b * mask) for (a, b), mask in zip(pairs, masks, strict=True))
    if distance == "l2":
        return _total((r * r).sum(1) for r in residuals)
    return _total(((r * r + _CORNER**2).sqrt() - _CORNER).sum(1) for r in residuals)


def gradient_distance(
    gradients: Mapping[str, Tensor],
    observed: Mapping[str, Tensor],
    distance: str = "l2",
    known: Mapping[str, Tensor] | None = None,
) -> Tensor:
    """Distance per trial (T,) over all tensors that were observed."""
    names = list(observed)
    masks = None if known is None else rows_of(known, names)
    return distance_between(rows_of(gradients, names), rows_of(observed, names), distance, masks)


def _total(parts: Iterable[Tensor]) -> Tensor:
    first, *rest = parts
    for part in rest:
        first = first + part
    return first
