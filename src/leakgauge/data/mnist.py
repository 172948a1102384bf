"""MNIST and Fashion-MNIST: 28 × 28 grey, ten classes, IDX files."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch

from leakgauge.data._dataset import Dataset, DataSource, Download, StandardFile, check_split
from leakgauge.data._idx import read_idx
from leakgauge.data._root import damaged, require
from leakgauge.types import DataSpec

MNIST_SPEC = DataSpec("mnist", (1, 28, 28), 10, "image", mean=(0.13066,), std=(0.30811,))
FASHION_SPEC = DataSpec("fashion-mnist", (1, 28, 28), 10, "image", mean=(0.2860,), std=(0.3530,))

_FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
_MNIST_FOLDERS = ("mnist", "MNIST/raw")
_DEBIAN = "/usr/share/datasets/fashion-mnist"  # where the package dataset-fashion-mnist puts it
_FASHION_FOLDERS = ("fashion-mnist", "FashionMNIST/raw", _DEBIAN)


def read(root: Path | None, split: str, *, spec: DataSpec, folders: tuple[str, ...]) -> Dataset:
    check_split(split)
    images_path, labels_path = (require(spec.name, root, *_places(file, folders)) for file in _FILES[split])
    images, labels = read_idx(images_path, 3), read_idx(labels_path, 1)
    if images.shape[1:] != spec.shape[1:] or len(images) != len(labels):
        raise damaged(
            images_path,
            f"{len(labels)} images of 28 x 28, as many as labels",
            f"{len(images)} of {' x '.join(map(str, images.shape[1:]))}",
        )
    inputs = torch.from_numpy(images[:, None].copy())  # (M, 1, 28, 28); the file's own is read-only
    return Dataset(spec, inputs, torch.from_numpy(labels.astype("int64")))


def _places(file: str, folders: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{folder}/{file}{suffix}" for folder in folders for suffix in (".gz", ""))


def _standard_files(folders: tuple[str, ...], md5s: tuple[str, ...]) -> tuple[StandardFile, ...]:
    names = _FILES["train"] + _FILES["test"]
    return tuple(StandardFile(_places(file, folders), f"md5:{md5}") for file, md5 in zip(names, md5s, strict=True))


def _downloads(host: str, folder: str, known: tuple[tuple[str, int], ...]) -> tuple[Download, ...]:
    names = _FILES["train"] + _FILES["test"]
    return tuple(
        Download(f"{host}{file}.gz", f"{folder}/{file}.gz", f"sha256:{sha256}", size)
        for file, (sha256, size) in zip(names, known, strict=True)
    )


MNIST = DataSource(
    "mnist",
    "handwritten digits, 28x28 grey, 10 classes",
    "LeCun, Cortes and Burges 1998",
    embedded=False,
    read=partial(read, spec=MNIST_SPEC, folders=_MNIST_FOLDERS),
    samples=(60000, 10000),
    files=_standard_files(
        _MNIST_FOLDERS,
        (
            "6bbc9ace898e44ae57da46a324031adb",
            "a25bea736e30d166cdddb491f175f624",
            "2646ac647ad5339dbf082846283269ea",
            "27ae3e4e09519cfbb04c329615203637",
        ),
    ),
    downloads=_downloads(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "mnist",
        (
            ("440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", 9912422),
            ("3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", 28881),
            ("8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", 1648877),
            ("f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", 4542),
        ),
    ),
)
FASHION_MNIST = DataSource(
    "fashion-mnist",
    "clothes, 28x28 grey, 10 classes",
    "Xiao, Rasul and Vollgraf 2017",
    embedded=False,
    read=partial(read, spec=FASHION_SPEC, folders=_FASHION_FOLDERS),
    samples=(60000, 10000),
    files=_standard_files(
        _FASHION_FOLDERS,
        (
            "f4a8712d7a061bf5bd6d2ca38dc4d50a",
            "9018921c3c673c538a1fc5bad174d6f9",
            "8181f5470baa50b63fa0f6fddb340f0a",
            "15d484375f8d13e6eb1aabb0c3f46965",
        ),
    ),
    downloads=_downloads(
        "https://fashion-mnist.s3.eu-central-1.amazonaws.com/",
        "fashion-mnist",
        (
            ("3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84", 26421880),
            ("a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845", 29515),
            ("346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073", 4422102),
            ("67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5", 5148),
        ),
    ),
)
