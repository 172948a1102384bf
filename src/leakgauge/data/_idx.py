"""The IDX format of MNIST and its relatives: big-endian header, then bytes; plain or gzipped."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from leakgauge.data._root import damaged
from leakgauge.reading.files import regular

_SHRINKS = 1032  # deflate packs at most so many bytes into one
_LARGEST = 1 << 30  # bytes; the largest set in this format has two thirds of that
_BYTES = 0x08  # the element type that MNIST uses; the format's others do not occur here


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """The array of one IDX file of bytes with this many dimensions: 1 for labels, 3 for images."""
    zipped = path.suffix == ".gz"
    header = 4 + 4 * dimensions
    try:
        with gzip.open(regular(path)) if zipped else regular(path).open("rb") as file:
            begin = file.read(header)
            if begin[:4] != bytes((0, 0, _BYTES, dimensions)) or len(begin) < header:
                magic = begin[:4].hex() or "an empty file"
                raise damaged(path, f"IDX with {dimensions} dimensions of bytes", f"a file that starts with {magic}")
            shape = struct.unpack(f">{dimensions}I", begin[4:])
            size = math.prod(shape)
            most = min(_LARGEST, (_SHRINKS if zipped else 1) * path.stat().st_size)  # no file can hold more
            raw = file.read(size + 1) if size <= most else b""
    except (OSError, EOFError, zlib.error) as error:
        raise damaged(path, "a readable file", f"{type(error).__name__}: {error}") from error
    if len(raw) != size:
        raise damaged(path, f"{size} bytes behind its header", len(raw) if size <= most else "room for far fewer")
    return np.frombuffer(raw, dtype=np.uint8).reshape(shape)
