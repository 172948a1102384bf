"""Wasserstein-p distance between the values of two equally long vectors.

In one dimension the best transport joins the sorted values, so W_p = (mean |sort(a) - sort(b)|^p)^(1/p).
GRNN's released code calls ||a - b||_2 by this name: it neither sorts nor takes a mean, so it depends on the
order and holds the same information as the MSE.
"""

from __future__ import annotations

from torch import Tensor

from leakgauge.errors import BadInput


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
