"""Does this kind of data fit the network? Sizes by arithmetic, refusals in one line."""

from __future__ import annotations

from leakgauge.errors import NotApplicable
from leakgauge.types import DataSpec


def image_shape(model: str, data: DataSpec, smallest: int = 1) -> tuple[int, int, int]:
    """(C, H, W) of the data, or `NotApplicable` for tables and for images under `smallest` pixels a side."""
    if data.kind != "image" or len(data.shape) != 3:
        raise NotApplicable(
            f"model {model!r} needs images (C, H, W), but {data.name!r} has shape {data.shape}; "
            "model 'mlp' takes any shape"
        )
    channels, height, width = data.shape
    if min(height, width) < smallest:
        raise NotApplicable(
            f"model {model!r} needs images of at least {smallest}x{smallest} pixels, but {data.name!r} has "
            f"{height}x{width}; 'lenet-dlg', 'resnet20' and 'mlp' take small images"
        )
    return channels, height, width


def conv_out(size: int, kernel: int, stride: int = 1, padding: int = 0) -> int:
    """Pixels a side after a convolution or a pooling."""
    return (size + 2 * padding - kernel) // stride + 1
