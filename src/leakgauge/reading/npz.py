"""Arrays of numbers from an .npz; what each declares is held against what is there before it gets memory."""

from __future__ import annotations

import math
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from leakgauge.errors import Unreadable
from leakgauge.reading.unpacked import open_zip

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Every array by its name, in this machine's byte order. Objects are refused: they would have to be unpickled."""
    try:
        with open_zip(path) as archive:
            arrays = {}
            for member in archive.infolist():
                if member.filename.endswith(".npy"):
                    with archive.open(member) as file:
                        arrays[member.filename.removesuffix(".npy")] = _array(file, member.file_size)
            return arrays
    except Unreadable:
        raise
    except Exception as error:  # zipfile, zlib, NumPy and its parser of headers each raise their own
        raise Unreadable(f"{type(error).__name__}: {error}") from error


def _array(file: IO[bytes], size: int) -> NDArray[Any]:
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise Unreadable(f"an array of format {version}")
    shape, by_column, kind = _HEADERS[version](file)
    if kind.hasobject or kind.itemsize == 0:
        raise Unreadable("pickled objects, which were not run" if kind.hasobject else "an array of nothing")
    if min(shape, default=0) < 0 or math.prod(shape) * kind.itemsize != size - file.tell():
        raise Unreadable(f"an array that declares {shape} and holds {size - file.tell():,} bytes")
    content = bytearray(size - file.tell())
    view, done = memoryview(content), 0
    while done < len(content) and (got := file.readinto(view[done:])):  # type: ignore[attr-defined]
        done += got
    if file.read(1) or done < len(content):  # to the end, where the checksum is compared
        raise Unreadable("an array that was cut off")
    flat: NDArray[Any] = np.frombuffer(content, kind)
    array = flat.reshape(shape, order="F" if by_column else "C")
    return array.astype(kind.newbyteorder("="), copy=False)
