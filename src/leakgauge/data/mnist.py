"""MNIST and Fashion-MNIST: 28 × 28 grey, ten classes. IDX files: big-endian header, then bytes; plain or gzipped."""

from __future__ import annotations

import math
import struct
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from leakgauge.data._dataset import Dataset, DataSource, Download, StandardFile
from leakgauge.data.files import damaged, opened, require
from leakgauge.types import DataSpec

_SHRINKS = 1032  # deflate packs at most so many bytes into one
_LARGEST = 1 << 30  # bytes; the largest set in this format has two thirds of that
_BYTES = 0x08  # the element type that MNIST uses; the format's others do not occur here
_FILES = (  # images and labels of train, then of test
    *("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    *("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
)
_DEBIAN = "/usr/share/datasets/fashion-mnist"  # where the package dataset-fashion-mnist puts it
_FOLDERS = {"mnist": ("mnist", "MNIST/raw"), "fashion-mnist": ("fashion-mnist", "FashionMNIST/raw", _DEBIAN)}


def read(root: Path | None, split: str, *, spec: DataSpec) -> Dataset:
    files = _FILES[:2] if split == "train" else _FILES[2:]
    images_path, labels_path = (require(spec.name, root, *_places(file, spec.name)) for file in files)
    images, labels = read_idx(images_path, 3), read_idx(labels_path, 1)
    if images.shape[1:] != spec.shape[1:] or len(images) != len(labels):
        got = f"{len(images)} of {' x '.join(map(str, images.shape[1:]))}"
        raise damaged(images_path, f"{len(labels)} images of 28 x 28, as many as labels", got)
    inputs = torch.from_numpy(images[:, None].copy())  # (M, 1, 28, 28); the file's own is read-only
    return Dataset(spec, inputs, torch.from_numpy(labels.astype("int64")))


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """The array of one IDX file of bytes with this many dimensions: 1 for labels, 3 for images."""
    header = 4 + 4 * dimensions
    with opened(path) as file:
        begin = file.read(header)
        if begin[:4] != bytes((0, 0, _BYTES, dimensions)) or len(begin) < header:
            magic = begin[:4].hex() or "an empty file"
            raise damaged(path, f"IDX with {dimensions} dimensions of bytes", f"a file that starts with {magic}")
        shape = struct.unpack(f">{dimensions}I", begin[4:])
        size = math.prod(shape)
        most = min(_LARGEST, (_SHRINKS if path.suffix == ".gz" else 1) * path.stat().st_size)  # no file can hold more
        raw = file.read(size + 1) if size <= most else b""
    if len(raw) != size:
        raise damaged(path, f"{size} bytes behind its header", len(raw) if size <= most else "room for far fewer")
    return np.frombuffer(raw, dtype=np.uint8).reshape(shape)


def _places(file: str, name: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{file}{suffix}" for folder in _FOLDERS[name] for suffix in (".gz", ""))


def _source(
    name: str, summary: str, paper: str, mean: float, std: float, host: str, known: tuple[tuple[str, str, int], ...]
) -> DataSource:
    """`known` are md5 of the contents, sha256 and size of the packed file, for each of `_FILES`."""
    listed = list(zip(_FILES, known, strict=True))
    spec = DataSpec(name, (1, 28, 28), 10, "image", mean=(mean,), std=(std,))
    return DataSource(
        name,
        summary,
        paper,
        read=partial(read, spec=spec),
        samples=(60000, 10000),
        files=tuple(StandardFile(_places(file, name), f"md5:{md5}") for file, (md5, _, _) in listed),
        downloads=tuple(
            Download(f"https://{host}/{file}.gz", f"{name}/{file}.gz", f"sha256:{sha256}", size)
            for file, (_, sha256, size) in listed
        ),
    )


_MNIST = (
    ("6bbc9ace898e44ae57da46a324031adb", "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", 9912422),
    ("a25bea736e30d166cdddb491f175f624", "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", 28881),
    ("2646ac647ad5339dbf082846283269ea", "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", 1648877),
    ("27ae3e4e09519cfbb04c329615203637", "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", 4542),
)
_FASHION = (
    ("f4a8712d7a061bf5bd6d2ca38dc4d50a", "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84", 26421880),
    ("9018921c3c673c538a1fc5bad174d6f9", "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845", 29515),
    ("8181f5470baa50b63fa0f6fddb340f0a", "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073", 4422102),
    ("15d484375f8d13e6eb1aabb0c3f46965", "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5", 5148),
)
MNIST = _source(
    "mnist",
    "handwritten digits, 28x28 grey, 10 classes",
    "LeCun, Cortes and Burges 1998",
    0.13066,
    0.30811,
    "ossci-datasets.s3.amazonaws.com/mnist",
    _MNIST,
)
FASHION_MNIST = _source(
    "fashion-mnist",
    "clothes, 28x28 grey, 10 classes",
    "Xiao, Rasul and Vollgraf 2017",
    0.2860,
    0.3530,
    "fashion-mnist.s3.eu-central-1.amazonaws.com",
    _FASHION,
)
