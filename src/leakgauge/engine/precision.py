"""What "float32" means on a GPU: PyTorch lets convolutions round to TF32 unless told otherwise."""

from __future__ import annotations

import torch

from leakgauge.settings import unknown_name

PRECISIONS = ("float32", "tf32")


def set_precision(precision: str) -> None:
    """For this process: full float32 products, or TF32 ones (10 bits of mantissa) where a GPU has them."""
    if precision not in PRECISIONS:
        raise unknown_name("precision", precision, PRECISIONS)
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
