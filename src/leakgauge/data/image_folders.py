"""Sets that are folders of photographs: Labeled Faces in the Wild, and Tiny ImageNet, 64 × 64 colour, 200 classes.

LFW is prepared as CPL does: frequent people, the middle of the picture, 32 × 32. `lfw:size=64` and `lfw:size=128` come
from the same middle, which has 128 pixels a side; larger sizes are enlarged. Tiny ImageNet is the official folder, or a
part of its validation images.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from leakgauge.data._dataset import IMAGENET_MEAN, IMAGENET_STD, Dataset, DataSource, Download, StandardFile, half
from leakgauge.data.files import damaged, read_image, require, stack, text_lines
from leakgauge.errors import BadInput
from leakgauge.types import DataSpec

_LEAST_IMAGES = 14  # people with fewer are left out
_CROP, _CROP_SIZE = (61, 61, 189, 189), 128  # pixels 61 to 188 both ways
_TEST_EVERY = 4  # of each person's images, by name: one in four is a victim


def _read_lfw(root: Path | None, split: str, size: int = 32) -> Dataset:
    """Classes are the people, by name. A subset of the people gives fewer classes. At most 128 pixels a side."""
    size = min(size, _CROP_SIZE)
    folder = require("lfw", root, "lfw")
    if not folder.is_dir():
        raise damaged(folder, "a folder", "a file")
    pictures = {person: sorted(person.glob("*.jpg")) for person in sorted(folder.iterdir()) if person.is_dir()}
    people = [paths for paths in pictures.values() if len(paths) >= _LEAST_IMAGES]
    if not people:
        allowed = f"sub-folders NAME/*.jpg, some with {_LEAST_IMAGES} images or more"
        do = "delete it and run 'leakgauge data fetch lfw'"
        raise BadInput(f"folder {str(folder)!r}", allowed=allowed, got="none", do=do)
    paths = [path for person in people for path in person]
    labels = np.repeat(np.arange(len(people)), [len(person) for person in people])
    index = half(labels, split, _TEST_EVERY)
    crops = (read_image(paths[i], side=250).crop(_CROP) for i in index)
    faces = stack([crop.resize((size, size), Image.Resampling.BICUBIC) for crop in crops])
    spec = DataSpec("lfw", (3, size, size), max(2, len(people)), "image", mean=IMAGENET_MEAN, std=IMAGENET_STD)
    return Dataset(spec, faces, torch.from_numpy(labels[index]))


_LFW_SHA256 = "sha256:055f7d9c632d7370e6fb4afc7468d40f970c34a80d4c6f50ffec63f5a8d536c0"
LFW = DataSource(
    "lfw",
    "faces of people with 14 pictures or more, cropped to 32x32 colour; the class is the person",
    "Huang et al. 2007; prepared as in Wei et al. 2020 (CPL)",
    read=_read_lfw,
    read_at=_read_lfw,
    files=(StandardFile(("lfw",)),),
    downloads=(Download("https://ndownloader.figshare.com/files/5976018", "lfw.tgz", _LFW_SHA256, 180566744, "lfw"),),
)

_SPEC = DataSpec("tiny-imagenet", (3, 64, 64), 200, "image", mean=IMAGENET_MEAN, std=IMAGENET_STD)
_FOLDERS = ("tiny-imagenet-200", "tiny-imagenet")

_Listed = list[tuple[Path, int]]  # images and their classes


def _read_tiny(root: Path | None, split: str) -> Dataset:
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
    read=_read_tiny,
    samples=(100000, 10000),
    files=(StandardFile(_FOLDERS),),
    downloads=(Download(f"https://cs231n.stanford.edu/{_ZIP}", _ZIP, _SHA256, 248100043, "tiny-imagenet-200"),),
)
