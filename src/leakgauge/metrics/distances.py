"""Distances that papers use: the cosine between gradients, and Wasserstein-p between the values of two vectors.

The cosine is over all tensors as one vector by default. Gao et al. 2021 average the cosines of the single tensors
instead, which lets a bias of ten entries count as much as a layer of a million; `per_tensor=True` gives that reading.

In one dimension the best transport joins the sorted values, so W_p = (mean |sort(a) - sort(b)|^p)^(1/p). GRNN's
released code calls ||a - b||_2 by this name: it neither sorts nor takes a mean, so it depends on the order and holds
the same information as the MSE.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from leakgauge.errors import BadInput


def gradient_similarity(
    first: Mapping[str, Tensor], second: Mapping[str, Tensor], *, per_tensor: bool = False
) -> Tensor:
    """Two updates, name -> (T, *parameter), to (T,) in [-1, 1], float64. A zero gradient gives 0."""
    if not first or first.keys() != second.keys():
        missing = sorted(first.keys() ^ second.keys())
        allowed, got = (
            "of the same parameters, at least one",
            f"only one with {', '.join(missing)}" if missing else "none",
        )
        raise BadInput("updates to compare", allowed=allowed, got=got, do="compare updates of one model")
    rows = [[u[n].reshape(len(u[n]), -1).double() for n in first] for u in (first, second)]  # a million squares
    pairs = zip(*rows, strict=True)
    products = torch.stack([torch.stack([(x * y).sum(1), (x * x).sum(1), (y * y).sum(1)]) for x, y in pairs])
    dot, xx, yy = (products if per_tensor else products.sum(0, keepdim=True)).unbind(1)  # (tensors or 1, T) each
    norm = (xx * yy).sqrt()
    return (dot / norm.where(norm > 0, 1.0)).where(norm > 0, 0.0).mean(0)


def wasserstein(a: Tensor, b: Tensor, *, p: float = 1.0, as_released: bool = False) -> Tensor:
    """(..., L) twice -> (...). `as_released` gives GRNN's unsorted norm and ignores `p`."""
    if p < 1:
        raise BadInput("p", allowed="at least 1", got=p, do="use p=1 or p=2")
    if a.shape != b.shape:
        raise BadInput("second vector", allowed=f"shaped {tuple(a.shape)}", got=tuple(b.shape), do="flatten both alike")
    if as_released:
        return (a - b).square().sum(-1).sqrt()
    gaps = (a.sort(dim=-1).values - b.sort(dim=-1).values).abs()
    return gaps.pow(p).mean(-1).pow(1 / p)
