"""What a precision means: the type of the numbers, and how a GPU multiplies them.

By default PyTorch lets convolutions on a GPU round to TF32, so "float32" has to be asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from leakgauge.engine.losses import Loss, Scaled
from leakgauge.settings import unknown_name
from leakgauge.types import PRECISIONS

_SCALE = 2.0**16


def set_precision(precision: str) -> None:
    """For this process: full products, or TF32 ones (10 bits of mantissa) of float32 numbers where a GPU has them."""
    dtype_of(precision)  # refuses an unknown one
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"


def dtype_of(precision: str) -> torch.dtype:
    """The type of model, samples and update under this precision."""
    if precision not in PRECISIONS:
        raise unknown_name("precision", precision, PRECISIONS)
    return torch.float64 if precision == "float64" else torch.float32


def autocast(precision: str, device: torch.device) -> AbstractContextManager[Any]:
    """Passes through the model in this type where torch's autocast allows it; nothing for float32."""
    return nullcontext() if precision == "float32" else torch.autocast(device.type, dtype=getattr(torch, precision))


def outside_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """For backward passes, which clients call when autocast has ended; nothing where there is none."""
    return torch.autocast(device.type, enabled=False) if torch.is_autocast_enabled(device.type) else nullcontext()


def in_precision(
    precision: str, device: torch.device, loss: Loss, gradients_of: Callable[[Loss], Mapping[str, Tensor]]
) -> dict[str, Tensor]:
    """The gradients of passes in this type, of a scaled loss in float16, which has no numbers below 6e-8.

    The scale is the largest power of two up to 65,536, torch's first, that no gradient overflows under: a client whose
    scaler finds infinity halves it and goes on.
    """
    with autocast(precision, device):
        if precision != "float16":
            return dict(gradients_of(loss))
        scale = _SCALE
        while True:
            found = gradients_of(Scaled(loss, scale))
            if scale == 1 or all(bool(torch.isfinite(g).all()) for g in found.values()):
                return {name: g / scale for name, g in found.items()}
            scale /= 2


def rounded_to(tensor: Tensor, numbers: str) -> Tensor:
    """The tensor as it is once it was sent as such numbers."""
    return tensor if numbers == "float32" else tensor.to(getattr(torch, numbers)).to(tensor.dtype)
