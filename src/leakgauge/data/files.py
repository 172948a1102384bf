"""Files of data sets: where they are, whether they are the published ones, and their texts and images.

Checksums are written "md5:..." or "sha256:...". Unpacked files are known by md5, which finds damage.
"""

from __future__ import annotations

import gzip
import hashlib
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from leakgauge.errors import BadInput, Unreadable
from leakgauge.reading.files import VARIABLE, data_root, regular

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")  # whatever the name: others may start programs
_MOST_PIXELS = 1 << 25  # a quarter of a gigabyte while it is read; a few kilobytes can claim far more
_PIECE = 1 << 20


def first_existing(root: Path, paths: tuple[str, ...]) -> Path | None:
    """The first of `paths`, relative to `root` or absolute, that exists."""
    return next((root / p for p in paths if (root / p).exists()), None)


def require(name: str, root: Path | None, *paths: str) -> Path:
    """As `first_existing`; if none exists, says where it looked and how to get the data."""
    folder = data_root(root)
    found = first_existing(folder, paths)
    if found is None:
        raise missing(name, *(folder / p for p in paths))
    return found


def missing(name: str, *looked: Path) -> BadInput:
    do = f"run 'leakgauge data fetch {name}', or point {VARIABLE} at the folder that holds it"
    return BadInput(f"data set {name!r}", allowed=f"at {' or '.join(map(str, looked))}", got="nothing there", do=do)


def damaged(path: Path, allowed: str, got: object) -> BadInput:
    """The error for a file that exists but is not what it should be."""
    return BadInput(f"file {str(path)!r}", allowed=allowed, got=got, do="delete it and fetch it again")


@contextmanager
def opened(path: Path, *, unzip: bool = True) -> Iterator[BufferedIOBase]:
    """The file, or what a .gz file holds. Damage that shows while it is read is named."""
    try:
        with gzip.open(regular(path)) if unzip and path.suffix == ".gz" else regular(path).open("rb") as file:
            yield file
    except (OSError, EOFError, zlib.error) as error:
        raise damaged(path, "a readable file", f"{type(error).__name__}: {error}") from error


def checksum_of(path: Path, algorithm: str, *, unzip: bool = False) -> str:
    """Of the file, or of what a .gz file holds: the same data compressed anew is still the same data."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with opened(path, unzip=unzip) as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return f"{algorithm}:{digest.hexdigest()}"


def matches(path: Path, checksum: str, *, unzip: bool = False) -> bool:
    return checksum_of(path, checksum.partition(":")[0], unzip=unzip) == checksum


def text_lines(path: Path, encoding: str) -> list[str]:
    try:
        return regular(path).read_text(encoding=encoding).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise damaged(path, "a readable text file", f"{type(error).__name__}: {error}") from error


def read_image(path: Path, side: int | None = None) -> Image.Image:
    """The file as RGB; with `side`, a square picture of that many pixels a side."""
    try:
        with regular(path).open("rb") as file:
            _refuse_large(*_webp_size(file.read(30)))  # Pillow allocates these before it can be asked for their size
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about damage that it can live with
            with Image.open(path, formats=_FORMATS) as file_image:
                _refuse_large(*file_image.size)
                image = file_image.convert("RGB")
    except Exception as error:  # a damaged picture can raise nearly anything
        got = error if isinstance(error, Unreadable) else f"{type(error).__name__}: {error}"
        what = f"file {str(path)!r}"
        raise BadInput(what, allowed="a readable image", got=got, do="replace or remove it") from error
    if side and image.size != (side, side):
        raise damaged(path, f"an image of {side} x {side} pixels", f"{image.width} x {image.height}")
    return image


def _refuse_large(width: int, height: int) -> None:
    if width * height > _MOST_PIXELS:
        raise Unreadable(f"{width} x {height} pixels, more than {_MOST_PIXELS:,}")


def _webp_size(head: bytes) -> tuple[int, int]:
    """The size that the first 30 bytes of a WebP file claim, in any of its three forms; (0, 0) for other files."""
    if len(head) < 30 or head[:4] != b"RIFF" or head[8:12] != b"WEBP":
        return 0, 0
    if head[12:16] == b"VP8X":  # the canvas: two sizes of 24 bits, less one
        return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
    if head[12:16] == b"VP8L":  # lossless: 14 bits each behind a signature byte, less one
        sizes = int.from_bytes(head[21:25], "little")
        return (sizes & 0x3FFF) + 1, (sizes >> 14 & 0x3FFF) + 1
    # Lossy: 14 bits each behind the frame's tag and start code
    return int.from_bytes(head[26:28], "little") & 0x3FFF, int.from_bytes(head[28:30], "little") & 0x3FFF


def stack(images: list[Image.Image]) -> Tensor:
    """RGB images of one size -> (M, 3, H, W) bytes."""
    return torch.from_numpy(np.stack([np.asarray(i) for i in images])).permute(0, 3, 1, 2).contiguous()
