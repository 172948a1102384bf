"""Reads the pickles that CIFAR comes in without running anything that a pickle may ask for.

Not even NumPy takes part: its own way to restore an array believes what the pickle says about types and sizes. An array
here is its bytes, held against the shape that is claimed for them.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from leakgauge.data._root import damaged
from leakgauge.errors import Unreadable
from leakgauge.reading.files import regular
from leakgauge.reading.pickles import Buildable, unpickle


def read_pickle(path: Path) -> dict[bytes, Any]:
    """The dictionary in the file; keys as bytes, whichever Python wrote them."""
    try:
        content = unpickle(regular(path).read_bytes(), _NAMES)
    except (OSError, Unreadable) as error:
        raise damaged(path, "a pickle of arrays and lists", error) from error
    if not isinstance(content, dict):
        raise damaged(path, "a pickled dictionary", type(content).__name__)
    values = {key: value.numbers if isinstance(value, _Array) else value for key, value in content.items()}
    return {key.encode(errors="replace") if isinstance(key, str) else key: value for key, value in values.items()}


class _Type(Buildable):
    """In place of numpy.dtype: one kind of numbers; what its second part says is already in its name."""

    def __init__(self, name: str | bytes, *_: object) -> None:
        self.kind: np.dtype[Any] = np.dtype(name.decode("ascii") if isinstance(name, bytes) else name)
        if self.kind.kind not in "biuf":
            raise Unreadable("an array of objects or texts, which is refused")

    def build(self, state: Any) -> None:
        if state[1] in (">", b">"):  # the second of its eight parts
            self.kind = self.kind.newbyteorder(">")


class _Array(Buildable):
    """In place of an array in the making: empty until its shape and bytes arrive."""

    def __init__(self, *_: object) -> None:
        self.numbers = np.zeros(0, np.uint8)

    def build(self, state: Any) -> None:
        _, shape, kind, by_column, content = state
        if not isinstance(kind, _Type) or not isinstance(content, bytes):
            raise Unreadable("an array without numbers, which is refused")
        if min(shape, default=0) < 0 or math.prod(shape) * kind.kind.itemsize != len(content):
            raise Unreadable(f"an array that declares {shape} and holds {len(content):,} bytes")
        flat = np.frombuffer(bytearray(content), kind.kind)
        self.numbers = flat.reshape(shape, order="F" if by_column else "C").astype(kind.kind.newbyteorder("="))


def _bytes_of(text: str, codec: str) -> bytes:
    """In place of _codecs.encode: how Python 3 writes bytes for Python 2, and no other codec."""
    if codec not in ("latin1", "latin-1"):
        raise Unreadable(f"codec {codec!r}, which is refused")
    return text.encode("latin-1")


_NAMES: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): "ndarray",  # only ever handed to the above
    ("numpy", "dtype"): _Type,
    ("_codecs", "encode"): _bytes_of,
}
