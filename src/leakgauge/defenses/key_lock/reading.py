"""FedKL's private key, read off the gradient of the lock layer: one division, no search.

Ren 2023, Eqs. 5.27 and 5.28. With opened = W k + b, row i of dL/dW is (dL/db_i) k, whatever the samples were and
however many. So every row whose bias has a gradient shows the key, and all rows show the same one. The same holds for
the weight difference of several local steps, but not with weight decay, which moves W on its own.
"""

from __future__ import annotations

import torch
from torch import Tensor

_TINY = 1e-300


def read_key(weight: Tensor, bias: Tensor) -> Tensor:
    """Gradients (T, R, K) and (T, R) -> (T, K): fitted to all rows by least squares. Zeros where no row has a slope."""
    scale = bias.abs().amax(1, keepdim=True).double()
    slope = bias.double() / scale.clamp_min(_TINY)  # (T, R), the largest is one: its square cannot vanish
    rows = weight.double() / scale.clamp_min(_TINY)[..., None]
    key = torch.einsum("tr,trk->tk", slope, rows) / slope.square().sum(1, keepdim=True).clamp_min(_TINY)
    return key.to(weight)


def misfit(weight: Tensor, bias: Tensor, key: Tensor) -> Tensor:
    """(T,): the share of the weight's gradient, by its norm, that `bias x key` leaves over; one if it is zero."""
    left = weight.double() - bias.double()[..., None] * key.double()[:, None]
    size = weight.double().flatten(1).norm(dim=1)
    return torch.where(size > 0, left.flatten(1).norm(dim=1) / size.clamp_min(_TINY), torch.ones_like(size))
