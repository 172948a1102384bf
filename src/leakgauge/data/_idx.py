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

_BYTES = 0x08  # the element type that MNIST uses; the format's others do not occur here


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """The array of one IDX file of bytes with this many dimensions: 1 for labels, 3 for images."""
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise damaged(path, "a readable file", f"{type(error).__name__}: {error}") from error
    header = 4 + 4 * dimensions
    if raw[:4] != bytes((0, 0, _BYTES, dimensions)) or len(raw) < header:
        magic = raw[:4].hex() or "an empty file"
        raise damaged(path, f"IDX with {dimensions} dimensions of bytes", f"a file that starts with {magic}")
    shape = struct.unpack(f">{dimensions}I", raw[4:header])
    if len(raw) - header != math.prod(shape):
        raise damaged(path, f"{math.prod(shape)} bytes behind its header", len(raw) - header)
    return np.frombuffer(raw, dtype=np.uint8, offset=header).reshape(shape)
