"""Image files into memory; a broken one is named."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from leakgauge.errors import BadInput, Unreadable
from leakgauge.reading.files import regular

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})


_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")  # whatever the name: others may start programs
_MOST_PIXELS = 1 << 25  # a quarter of a gigabyte while it is read; a few kilobytes can claim far more


def read_image(path: Path) -> Image.Image:
    """The file as RGB."""
    try:
        with regular(path).open("rb") as file:
            _refuse_large(*_webp_size(file.read(30)))  # Pillow makes room for these before they can be asked for
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about damage that it can live with
            with Image.open(path, formats=_FORMATS) as image:
                _refuse_large(*image.size)
                return image.convert("RGB")
    except Exception as error:  # a damaged picture can raise nearly anything
        raise BadInput(
            f"file {str(path)!r}",
            allowed="a readable image",
            got=error if isinstance(error, Unreadable) else f"{type(error).__name__}: {error}",
            do="replace or remove it",
        ) from error


def _refuse_large(width: int, height: int) -> None:
    if width * height > _MOST_PIXELS:
        raise Unreadable(f"{width} x {height} pixels, more than {_MOST_PIXELS:,}")


def _webp_size(head: bytes) -> tuple[int, int]:
    """What the first 30 bytes of a WebP file claim, in any of its three forms; nothing for other files."""
    if len(head) < 30 or head[:4] != b"RIFF" or head[8:12] != b"WEBP":
        return 0, 0
    if head[12:16] == b"VP8X":  # the canvas: two sizes of 24 bits, less one
        return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
    if head[12:16] == b"VP8L":  # lossless: 14 bits each behind a signature byte, less one
        sizes = int.from_bytes(head[21:25], "little")
        return (sizes & 0x3FFF) + 1, (sizes >> 14 & 0x3FFF) + 1
    # Lossy: 14 bits each behind the frame's tag and start code
    return int.from_bytes(head[26:28], "little") & 0x3FFF, int.from_bytes(head[28:30], "little") & 0x3FFF


def centre_square(image: Image.Image, size: int) -> Image.Image:
    """The largest centred square, resized with antialiasing."""
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    return image.crop((left, top, left + side, top + side)).resize((size, size), Image.Resampling.LANCZOS)


def stack(images: list[Image.Image]) -> Tensor:
    """RGB images of one size -> (M, 3, H, W) bytes."""
    return torch.from_numpy(np.stack([np.asarray(i) for i in images])).permute(0, 3, 1, 2).contiguous()
