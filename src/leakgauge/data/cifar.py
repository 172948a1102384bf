"""CIFAR-10 and CIFAR-100: 32 × 32 colour, the published Python pickles, read without running what they may ask for.

Not even NumPy takes part: its own way to restore an array trusts the types and sizes in the pickle. Here an array is
bytes, checked against the shape that the pickle claims for them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from leakgauge.data._dataset import Dataset, DataSource, Download, StandardFile
from leakgauge.data.files import damaged, missing
from leakgauge.errors import Unreadable
from leakgauge.reading.files import data_root, regular
from leakgauge.reading.pickles import Buildable, unpickle
from leakgauge.types import DataSpec

_CLASSES = 100  # of CIFAR-100; the data set itself checks that CIFAR-10 has ten


def _read(
    root: Path | None, split: str, *, spec: DataSpec, folder: str, files: Sequence[str], labels: bytes
) -> Dataset:
    """Train of CIFAR-10 takes whichever of its five batches exist, so that a part of it is usable too."""
    wanted = [data_root(root) / folder / file for file in files if ("test" in file) == (split == "test")]
    paths = [path for path in wanted if path.is_file()]
    if not paths:
        raise missing(spec.name, wanted[0])
    pieces = [_piece(path, labels) for path in paths]
    inputs = np.concatenate([images for images, _ in pieces]).reshape(-1, 3, 32, 32)
    return Dataset(spec, torch.from_numpy(inputs), torch.from_numpy(np.concatenate([y for _, y in pieces])))


def _piece(path: Path, label_key: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """One file: images (M, 3072) and labels (M,)."""
    content = read_pickle(path)
    images: Any = content.get(b"data")
    labels: Any = content.get(label_key)
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.shape[1:] != (3 * 32 * 32,):
        raise damaged(path, "a CIFAR file with bytes of shape (M, 3072) as its data", _describe(images))
    known = isinstance(labels, list) and all(type(label) is int and 0 <= label < _CLASSES for label in labels)
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


def _source(
    name: str,
    classes: int,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    labels: bytes,
    folder: str,
    archive: tuple[str, str, int],
    md5s: tuple[tuple[str, str], ...],
) -> DataSource:
    spec = DataSpec(name, (3, 32, 32), classes, "image", mean=mean, std=std)
    file, sha256, size = archive
    optional = [f"data_batch_{k}" for k in range(2, 6)]
    return DataSource(
        name,
        f"small colour photographs, 32x32, {classes} classes",
        "Krizhevsky 2009, Learning multiple layers of features from tiny images",
        read=partial(_read, spec=spec, folder=folder, files=[n for n, _ in md5s], labels=labels),
        samples=(50000, 10000),
        files=tuple(StandardFile((f"{folder}/{n}",), f"md5:{md5}", n in optional) for n, md5 in md5s),
        downloads=(Download(f"https://www.cs.toronto.edu/~kriz/{file}", file, f"sha256:{sha256}", size, folder),),
    )


CIFAR10 = _source(
    "cifar10",
    10,
    (0.49147, 0.48226, 0.44677),
    (0.24703, 0.24349, 0.26159),
    b"labels",
    "cifar-10-batches-py",
    ("cifar-10-python.tar.gz", "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce", 170498071),
    (
        ("data_batch_1", "c99cafc152244af753f735de768cd75f"),
        ("data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"),
        ("data_batch_3", "54ebc095f3ab1f0389bbae665268c751"),
        ("data_batch_4", "634d18415352ddfa80567beed471001a"),
        ("data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"),
        ("test_batch", "40351d587109b95175f43aff81a1287e"),
    ),
)
CIFAR100 = _source(
    "cifar100",
    100,
    (0.50716, 0.48669, 0.44120),
    (0.26733, 0.25644, 0.27615),
    b"fine_labels",
    "cifar-100-python",
    ("cifar-100-python.tar.gz", "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7", 169001437),
    (("train", "16019d7e3df5f24257cddd939b257f8d"), ("test", "f0ef6b0ae62326f3e7ffdfab6717acfc")),
)
