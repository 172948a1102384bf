"""How alike two updates are: the cosine between gradients, per trial.

Over all tensors as one vector by default. Gao et al. 2021 average the cosines of the single tensors instead, which lets
a bias of ten entries count as much as a layer of a million; `per_tensor=True` gives that reading.
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
        raise BadInput(
            "updates to compare",
            allowed="of the same parameters, at least one",
            got=f"only one with {', '.join(missing)}" if missing else "none",
            do="compare updates of one model",
        )
    products = torch.stack([_products(first[n], second[n]) for n in first])  # (tensors, 3, T)
    if per_tensor:
        return _cosine(products).mean(0)
    return _cosine(products.sum(0, keepdim=True))[0]


def _products(a: Tensor, b: Tensor) -> Tensor:
    """(T, *parameter) twice -> (3, T): a.b, a.a and b.b; float64, as a million squares are summed."""
    x, y = (t.reshape(len(t), -1).double() for t in (a, b))
    return torch.stack([(x * y).sum(1), (x * x).sum(1), (y * y).sum(1)])


def _cosine(products: Tensor) -> Tensor:
    """(..., 3, T) -> (..., T)."""
    dot, xx, yy = products.unbind(-2)
    norm = (xx * yy).sqrt()
    return torch.where(norm > 0, dot / norm.where(norm > 0, torch.ones_like(norm)), torch.zeros_like(dot))
