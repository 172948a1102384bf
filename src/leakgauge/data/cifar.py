"""CIFAR-10 and CIFAR-100: 32 × 32 colour, the published Python pickles (read without running them)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from leakgauge.data._dataset import Dataset, DataSource, Download, StandardFile, check_split
from leakgauge.data._root import damaged, missing, require
from leakgauge.data._safe_pickle import read_pickle
from leakgauge.reading.files import data_root
from leakgauge.types import DataSpec

CIFAR10_SPEC = DataSpec(
    "cifar10", (3, 32, 32), 10, "image", mean=(0.49147, 0.48226, 0.44677), std=(0.24703, 0.24349, 0.26159)
)
CIFAR100_SPEC = DataSpec(
    "cifar100", (3, 32, 32), 100, "image", mean=(0.50716, 0.48669, 0.44120), std=(0.26733, 0.25644, 0.27615)
)
_FOLDER10, _FOLDER100 = "cifar-10-batches-py", "cifar-100-python"
_PAPER = "Krizhevsky 2009, Learning multiple layers of features from tiny images"


def read_cifar10(root: Path | None, split: str) -> Dataset:
    """Train takes whichever of the five batches are there, so that a part of CIFAR-10 is usable too."""
    check_split(split)
    if split == "test":
        paths = [require("cifar10", root, f"{_FOLDER10}/test_batch")]
    else:
        folder = data_root(root) / _FOLDER10
        paths = [p for k in range(1, 6) if (p := folder / f"data_batch_{k}").is_file()]
        if not paths:
            raise missing("cifar10", folder / "data_batch_1")
    return _dataset(CIFAR10_SPEC, paths, b"labels")


def read_cifar100(root: Path | None, split: str) -> Dataset:
    """With the 100 fine labels."""
    check_split(split)
    return _dataset(CIFAR100_SPEC, [require("cifar100", root, f"{_FOLDER100}/{split}")], b"fine_labels")


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
    if not isinstance(labels, list) or len(labels) != len(images) or not all(_is_class(v) for v in labels):
        raise damaged(path, f"a CIFAR file with {len(images)} {label_key.decode()}", _describe(labels))
    return images, np.array(labels, dtype=np.int64)


def _is_class(value: object) -> bool:
    return type(value) is int and 0 <= value < CIFAR100_SPEC.classes


def _describe(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    return f"a list of {len(value)}" if isinstance(value, list) else type(value).__name__


def _files(folder: str, md5s: dict[str, str], optional: frozenset[str]) -> tuple[StandardFile, ...]:
    return tuple(StandardFile((f"{folder}/{n}",), f"md5:{m}", n in optional) for n, m in md5s.items())


_MD5_10 = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}
_MD5_100 = {"train": "16019d7e3df5f24257cddd939b257f8d", "test": "f0ef6b0ae62326f3e7ffdfab6717acfc"}
_HOST = "https://www.cs.toronto.edu/~kriz/"

CIFAR10 = DataSource(
    "cifar10",
    "small colour photographs, 32x32, 10 classes",
    _PAPER,
    embedded=False,
    read=read_cifar10,
    samples=(50000, 10000),
    files=_files(_FOLDER10, _MD5_10, optional=frozenset(_MD5_10) - {"data_batch_1", "test_batch"}),
    downloads=(
        Download(
            f"{_HOST}cifar-10-python.tar.gz",
            "cifar-10-python.tar.gz",
            "sha256:6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
            170498071,
            unpacks_to=_FOLDER10,
        ),
    ),
)
CIFAR100 = DataSource(
    "cifar100",
    "small colour photographs, 32x32, 100 classes",
    _PAPER,
    embedded=False,
    read=read_cifar100,
    samples=(50000, 10000),
    files=_files(_FOLDER100, _MD5_100, optional=frozenset()),
    downloads=(
        Download(
            f"{_HOST}cifar-100-python.tar.gz",
            "cifar-100-python.tar.gz",
            "sha256:85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
            169001437,
            unpacks_to=_FOLDER100,
        ),
    ),
)
