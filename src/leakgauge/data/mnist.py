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
        Download(f"{host}{file}.gz", f"{folder}/{file}.gz", f"md5:{md5}", size)
        for file, (md5, size) in zip(names, known, strict=True)
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
            ("f68b3c2dcbeaaa9fbdd348bbdeb94873", 9912422),
            ("d53e105ee54ea40749a09fcbcd1e9432", 28881),
            ("9fb629c4189551a2d022fa330f9573f3", 1648877),
            ("ec29112dd5afa0611ce80d1b7f02629c", 4542),
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
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "fashion-mnist",
        (
            ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26421880),
            ("25c81989df183df01b3e8a0aad5dffbe", 29515),
            ("bef4ecab320f06d8554ea6380940ec79", 4422102),
            ("bb300cfdad3c16e7a12a480ee83cd310", 5148),
        ),
    ),
)
