"""What a precision means: the type of the numbers, and how a GPU multiplies them.

By default PyTorch lets convolutions on a GPU round to TF32, so "float32" has to be asked for.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from leakgauge.settings import unknown_name
from leakgauge.types import PRECISIONS


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


def rounded_to(tensor: Tensor, numbers: str) -> Tensor:
    """The tensor as it is once it was sent as such numbers."""
    return tensor if numbers == "float32" else tensor.to(getattr(torch, numbers)).to(tensor.dtype)
