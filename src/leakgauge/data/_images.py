"""Image files into memory; a broken one is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from leakgauge.errors import BadInput

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})


def read_image(path: Path) -> Image.Image:
    """The file as RGB."""
    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise BadInput(
            f"file {str(path)!r}",
            allowed="a readable image",
            got=f"{type(error).__name__}: {error}",
            do="replace or remove it",
        ) from error


def centre_square(image: Image.Image, size: int) -> Image.Image:
    """The largest centred square, resized with antialiasing."""
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    return image.crop((left, top, left + side, top + side)).resize((size, size), Image.Resampling.LANCZOS)


def stack(images: list[Image.Image]) -> Tensor:
    """RGB images of one size -> (M, 3, H, W) bytes."""
    return torch.from_numpy(np.stack([np.asarray(i) for i in images])).permute(0, 3, 1, 2).contiguous()
