"""Tiny ImageNet: 64 × 64 colour, 200 classes; the official folder, or a part of its validation images."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import torch

from leakgauge.data._dataset import IMAGENET_MEAN, IMAGENET_STD, Dataset, DataSource, Download, StandardFile, half
from leakgauge.data.files import damaged, read_image, require, stack, text_lines
from leakgauge.types import DataSpec

_SPEC = DataSpec("tiny-imagenet", (3, 64, 64), 200, "image", mean=IMAGENET_MEAN, std=IMAGENET_STD)
_FOLDERS = ("tiny-imagenet-200", "tiny-imagenet")

_Listed = list[tuple[Path, int]]  # images and their classes


def read(root: Path | None, split: str) -> Dataset:
    """Official folder: train and val. Reduced folder (labels.csv, images/): half of each class is public."""
    folder = require(_SPEC.name, root, *_FOLDERS)
    if (folder / "wnids.txt").is_file():
        listed = _train(folder) if split == "train" else _validation(folder)
    else:
        listed = _reduced(folder)
        listed = [listed[i] for i in half(np.array([label for _, label in listed], dtype=np.int64), split)]
    if not listed:
        raise damaged(folder, f"a folder with {split} images", "none")
    if len({path for path, _ in listed}) < len(listed):
        raise damaged(folder, "a folder whose lists name each image once", "an image that is named twice")
    images = stack([read_image(path, side=64) for path, _ in listed])
    return Dataset(_SPEC, images, torch.tensor([label for _, label in listed]))


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
    for line in text_lines(annotations, "utf-8"):
        file, wnid, *_ = (*line.split("\t"), "")
        if wnid not in classes:
            raise damaged(annotations, "lines of FILE and a class in wnids.txt, tab between", repr(line[:60]))
        listed.append((folder / "val" / "images" / _plain_name(annotations, file), classes[wnid]))
    return listed


def _reduced(folder: Path) -> _Listed:
    table = folder / "labels.csv"
    listed = []
    try:
        rows = list(csv.DictReader(text_lines(table, "utf-8")))
    except csv.Error as error:
        raise damaged(table, "a table", error) from error
    for row in rows:
        file, label = row.get("file") or "", row.get("class") or ""
        if label not in map(str, range(_SPEC.classes)):
            raise damaged(table, f"columns file and class, class below {_SPEC.classes}", f"class {label!r}")
        listed.append((folder / "images" / _plain_name(table, file), int(label)))
    return listed


def _classes(folder: Path) -> dict[str, int]:
    """WordNet id -> class, in the order of wnids.txt sorted, as torchvision's folder reader numbers them."""
    path = folder / "wnids.txt"
    wnids = sorted(_plain_name(path, line.strip()) for line in text_lines(path, "utf-8"))
    if len(wnids) > _SPEC.classes:
        raise damaged(path, f"at most {_SPEC.classes} lines", len(wnids))
    return {wnid: label for label, wnid in enumerate(wnids)}


def _plain_name(table: Path, name: str) -> str:
    """A listed name must stay inside its folder."""
    if not name or name in (".", "..") or set(name) & set("/\\\0") or len(name.encode(errors="replace")) > 255:
        raise damaged(table, "a list of plain file names", repr(name))
    return name


_ZIP = "tiny-imagenet-200.zip"
_SHA256 = "sha256:6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821"
TINY_IMAGENET = DataSource(
    "tiny-imagenet",
    "photographs, 64x64 colour, 200 classes",
    "Le and Yang 2015, Stanford CS231n; images from Deng et al. 2009",
    read=read,
    samples=(100000, 10000),
    files=(StandardFile(_FOLDERS),),
    downloads=(Download(f"https://cs231n.stanford.edu/{_ZIP}", _ZIP, _SHA256, 248100043, "tiny-imagenet-200"),),
)
