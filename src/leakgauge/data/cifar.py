"""CIFAR-10 and CIFAR-100: 32 × 32 colour, the published Python pickles, read without running what they may ask for.

Not even NumPy takes part: its own way to restore an array trusts the types and sizes in the pickle. Here an array is
bytes, checked against the shape that the pickle claims for them.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from leakgauge.data._dataset import Dataset, DataSource, Download, StandardFile
from leakgauge.data.files import damaged, missing, require
from leakgauge.errors import Unreadable
from leakgauge.reading.files import data_root, regular
from leakgauge.reading.pickles import Buildable, unpickle
from leakgauge.types import DataSpec

_MEAN10, _STD10 = (0.49147, 0.48226, 0.44677), (0.24703, 0.24349, 0.26159)
_MEAN100, _STD100 = (0.50716, 0.48669, 0.44120), (0.26733, 0.25644, 0.27615)
_SPEC10 = DataSpec("cifar10", (3, 32, 32), 10, "image", mean=_MEAN10, std=_STD10)
_SPEC100 = DataSpec("cifar100", (3, 32, 32), 100, "image", mean=_MEAN100, std=_STD100)
_FOLDER10, _FOLDER100 = "cifar-10-batches-py", "cifar-100-python"
_PAPER = "Krizhevsky 2009, Learning multiple layers of features from tiny images"


def _read10(root: Path | None, split: str) -> Dataset:
    """Train takes whichever of the five batches exist, so that a part of CIFAR-10 is usable too."""
    if split == "test":
        return _dataset(_SPEC10, [require("cifar10", root, f"{_FOLDER10}/test_batch")], b"labels")
    folder = data_root(root) / _FOLDER10
    paths = [p for k in range(1, 6) if (p := folder / f"data_batch_{k}").is_file()]
    if not paths:
        raise missing("cifar10", folder / "data_batch_1")
    return _dataset(_SPEC10, paths, b"labels")


def _read100(root: Path | None, split: str) -> Dataset:
    """With the 100 fine labels."""
    return _dataset(_SPEC100, [require("cifar100", root, f"{_FOLDER100}/{split}")], b"fine_labels")


def _dataset(spec: DataSpec, paths: list[Path], label_key: bytes) -> Dataset:
    pieces = [_piece(path, label_key) for path in paths]
    inputs = np.concatenate([images for images, _ in pieces]).reshape(-1, 3, 32, 32)
    return Dataset(spec, torch.from_numpy(inputs), torch.from_numpy(np.concatenate([y for _, y in pieces])))


def _piece(path: Path, label_key: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """One file: images (M, 3072) and labels (M,)."""
    content = read_pickle(path)
    images: Any = content.get(b"data")
    labels: Any = content.get(label_key)
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.shape[1:] != (3 * 32 * 32,):
        raise damaged(path, "a CIFAR file with bytes of shape (M, 3072) as its data", _describe(images))
    classes = range(_SPEC100.classes)
    known = isinstance(labels, list) and all(type(label) is int and label in classes for label in labels)
    if not known or len(labels) != len(images):
        raise damaged(path, f"a CIFAR file with {len(images)} {label_key.decode()}", _describe(labels))
    return images, np.array(labels, dtype=np.int64)


def _describe(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    return f"a list of {len(value)}" if isinstance(value, list) else type(value).__name__


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


_MD5_10 = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}
_MD5_100 = {"train": "16019d7e3df5f24257cddd939b257f8d", "test": "f0ef6b0ae62326f3e7ffdfab6717acfc"}
_SHA10 = "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"
_SHA100 = "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7"


def _files(folder: str, md5s: dict[str, str]) -> tuple[StandardFile, ...]:
    """Of CIFAR-10, only the first batch and the test batch must exist."""
    optional = {f"data_batch_{k}" for k in range(2, 6)}
    return tuple(StandardFile((f"{folder}/{n}",), f"md5:{m}", n in optional) for n, m in md5s.items())


def _download(file: str, sha256: str, size: int, folder: str) -> tuple[Download]:
    return (Download(f"https://www.cs.toronto.edu/~kriz/{file}", file, f"sha256:{sha256}", size, folder),)


CIFAR10 = DataSource(
    "cifar10",
    "small colour photographs, 32x32, 10 classes",
    _PAPER,
    read=_read10,
    samples=(50000, 10000),
    files=_files(_FOLDER10, _MD5_10),
    downloads=_download("cifar-10-python.tar.gz", _SHA10, 170498071, _FOLDER10),
)
CIFAR100 = DataSource(
    "cifar100",
    "small colour photographs, 32x32, 100 classes",
    _PAPER,
    read=_read100,
    samples=(50000, 10000),
    files=_files(_FOLDER100, _MD5_100),
    downloads=_download("cifar-100-python.tar.gz", _SHA100, 169001437, _FOLDER100),
)
