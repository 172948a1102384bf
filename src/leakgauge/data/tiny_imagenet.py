"""Tiny ImageNet: 64 × 64 colour, 200 classes; the official folder, or a part of its validation images."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import torch

from leakgauge.data._dataset import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    Dataset,
    DataSource,
    Download,
    StandardFile,
    check_split,
)
from leakgauge.data._halves import half
from leakgauge.data._images import read_image, stack
from leakgauge.data._root import damaged, require
from leakgauge.reading.files import regular
from leakgauge.types import DataSpec

SPEC = DataSpec("tiny-imagenet", (3, 64, 64), 200, "image", mean=IMAGENET_MEAN, std=IMAGENET_STD)
_CLASSES = frozenset(map(str, range(SPEC.classes)))
_FOLDERS = ("tiny-imagenet-200", "tiny-imagenet")

_Listed = list[tuple[Path, int]]  # images and their classes


def read(root: Path | None, split: str) -> Dataset:
    """Official folder: train and val. Reduced folder (labels.csv, images/): half of each class is public."""
    check_split(split)
    folder = require(SPEC.name, root, *_FOLDERS)
    if (folder / "wnids.txt").is_file():
        listed = _train(folder) if split == "train" else _validation(folder)
    else:
        listed = _reduced(folder)
        labels = np.array([label for _, label in listed], dtype=np.int64)
        listed = [listed[i] for i in half(labels, split)]
    if not listed:
        raise damaged(folder, f"a folder with {split} images", "none")
    if len({path for path, _ in listed}) < len(listed):
        raise damaged(folder, "a folder whose lists name each image once", "an image that is named twice")
    images = [read_image(path) for path, _ in listed]
    for image, (path, _) in zip(images, listed, strict=True):
        if image.size != (64, 64):
            raise damaged(path, "an image of 64 x 64 pixels", f"{image.width} x {image.height}")
    return Dataset(SPEC, stack(images), torch.tensor([label for _, label in listed]))


def _train(folder: Path) -> _Listed:
    return [
        (path, label)
        for wnid, label in _classes(folder).items()
        for path in sorted((folder / "train" / wnid / "images").glob("*.JPEG"))
    ]


def _validation(folder: Path) -> _Listed:
    annotations = folder / "val" / "val_annotations.txt"
    classes = _classes(folder)
    listed = []
    for line in _lines(annotations):
        file, wnid, *_ = (*line.split("\t"), "")
        if wnid not in classes:
            raise damaged(annotations, "lines of FILE and a class in wnids.txt, tab between", repr(line[:60]))
        listed.append((folder / "val" / "images" / _plain_name(annotations, file), classes[wnid]))
    return listed


def _reduced(folder: Path) -> _Listed:
    table = folder / "labels.csv"
    listed = []
    try:
        rows = list(csv.DictReader(_lines(table)))
    except csv.Error as error:
        raise damaged(table, "a table", error) from error
    for row in rows:
        file, label = row.get("file") or "", row.get("class") or ""
        if label not in _CLASSES:
            raise damaged(table, f"columns file and class, class below {SPEC.classes}", f"class {label!r}")
        listed.append((folder / "images" / _plain_name(table, file), int(label)))
    return listed


def _classes(folder: Path) -> dict[str, int]:
    """WordNet id -> class, in the order of wnids.txt sorted, as torchvision's folder reader numbers them."""
    path = folder / "wnids.txt"
    wnids = sorted(_plain_name(path, line.strip()) for line in _lines(path))
    if len(wnids) > SPEC.classes:
        raise damaged(path, f"at most {SPEC.classes} lines", len(wnids))
    return {wnid: label for label, wnid in enumerate(wnids)}


def _lines(path: Path) -> list[str]:
    try:
        return regular(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise damaged(path, "a readable text file", f"{type(error).__name__}: {error}") from error


def _plain_name(table: Path, name: str) -> str:
    """A listed name must stay inside its folder."""
    if not name or name in (".", "..") or set(name) & set("/\\\0") or len(name.encode(errors="replace")) > 255:
        raise damaged(table, "a list of plain file names", repr(name))
    return name


TINY_IMAGENET = DataSource(
    "tiny-imagenet",
    "photographs, 64x64 colour, 200 classes",
    "Le and Yang 2015, Stanford CS231n; images from Deng et al. 2009",
    embedded=False,
    read=read,
    samples=(100000, 10000),
    files=(StandardFile(_FOLDERS),),
    downloads=(
        Download(
            "https://cs231n.stanford.edu/tiny-imagenet-200.zip",
            "tiny-imagenet-200.zip",
            "sha256:6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821",
            248100043,
            unpacks_to="tiny-imagenet-200",
        ),
    ),
)
