"""Reads the pickles that CIFAR comes in without running anything that a pickle may ask for.

A pickle names functions to call. Only what NumPy's arrays and old byte strings need is let through, and
the two callables that take names (of a type, of a codec) are replaced by stricter ones.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from leakgauge.data._root import damaged


def read_pickle(path: Path) -> dict[bytes, Any]:
    """The dictionary in the file; keys as bytes, whichever Python wrote them."""
    try:
        content = _OnlyArrays(io.BytesIO(path.read_bytes()), encoding="bytes").load()
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise damaged(path, "a pickle of arrays and lists", f"{type(error).__name__}: {error}") from error
    if not isinstance(content, dict):
        raise damaged(path, "a pickled dictionary", type(content).__name__)
    return {key.encode() if isinstance(key, str) else key: value for key, value in content.items()}


def _number_type(name: str | bytes, *_: object) -> np.dtype[Any]:
    """In place of numpy.dtype: numbers and bytes only, no Python objects."""
    found: np.dtype[Any] = np.dtype(name.decode("ascii") if isinstance(name, bytes) else name)
    if found.hasobject:
        raise pickle.UnpicklingError("arrays of Python objects are refused")
    return found


def _bytes_of(text: str, codec: str) -> bytes:
    """In place of _codecs.encode: how Python 3 writes bytes for Python 2, and no other codec."""
    if codec not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(f"codec {codec!r} is refused")
    return text.encode("latin-1")


_RECONSTRUCT = np.zeros(0).__reduce__()[0]  # NumPy's own, wherever this version keeps it
_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): _number_type,
    ("_codecs", "encode"): _bytes_of,
}


# The unpickler in Python, not the one in C: there, one wrong byte can ask for gigabytes of memo table.
class _OnlyArrays(pickle._Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is refused")
        return _ALLOWED[module, name]
