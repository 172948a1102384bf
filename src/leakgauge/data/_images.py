"""Image files into memory; a broken one is named."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from leakgauge.errors import BadInput, Unreadable

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})


_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")  # whatever the name: others may start programs
_MOST_PIXELS = 1 << 25  # a quarter of a gigabyte while it is read; a few kilobytes can claim far more


def read_image(path: Path) -> Image.Image:
    """The file as RGB."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about damage that it can live with
            with Image.open(path, formats=_FORMATS) as image:
                if image.width * image.height > _MOST_PIXELS:
                    raise Unreadable(f"{image.width} x {image.height} pixels, more than {_MOST_PIXELS:,}")
                return image.convert("RGB")
    except Exception as error:  # a damaged picture can raise nearly anything
        raise BadInput(
            f"file {str(path)!r}",
            allowed="a readable image",
            got=error if isinstance(error, Unreadable) else f"{type(error).__name__}: {error}",
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
