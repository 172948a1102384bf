"""Labeled Faces in the Wild, prepared as CPL does: frequent people, the middle of the picture, 32 × 32.

`lfw:size=64` and `lfw:size=128` come from the same middle, which has 128 pixels a side; larger sizes are enlarged.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image

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
from leakgauge.errors import BadInput
from leakgauge.types import DataSpec

LEAST_IMAGES = 14  # people with fewer are left out
CROP = (61, 61, 189, 189)  # pixels 61 to 188 both ways
CROP_SIZE = 128
SIZE = 32  # a quarter of that
TEST_EVERY = 4  # of each person's images, by name: one in four is a victim


def read(root: Path | None, split: str, size: int = SIZE) -> Dataset:
    """Classes are the people, by name. A subset of the people gives fewer classes. At most 128 pixels a side."""
    check_split(split)
    size = min(size, CROP_SIZE)
    folder = require("lfw", root, "lfw")
    if not folder.is_dir():
        raise damaged(folder, "a folder", "a file")
    people = [p for p in sorted(folder.iterdir()) if p.is_dir() and len(_pictures(p)) >= LEAST_IMAGES]
    if not people:
        raise BadInput(
            f"folder {str(folder)!r}",
            allowed=f"sub-folders NAME/*.jpg, some with {LEAST_IMAGES} images or more",
            got="none",
            do="delete it and run 'leakgauge data fetch lfw'",
        )
    paths = [path for person in people for path in _pictures(person)]
    number = {person: label for label, person in enumerate(people)}
    labels = np.array([number[path.parent] for path in paths], dtype=np.int64)
    index = half(labels, split, TEST_EVERY)
    faces = stack([_face(paths[i], size) for i in index])
    spec = DataSpec("lfw", (3, size, size), max(2, len(people)), "image", mean=IMAGENET_MEAN, std=IMAGENET_STD)
    return Dataset(spec, faces, torch.from_numpy(labels[index]))


def _pictures(person: Path) -> list[Path]:
    return sorted(person.glob("*.jpg"))


def _face(path: Path, size: int) -> Image.Image:
    image = read_image(path)
    if image.size != (250, 250):
        raise damaged(path, "an LFW picture of 250 x 250 pixels", f"{image.width} x {image.height}")
    return image.crop(CROP).resize((size, size), Image.Resampling.BICUBIC)


LFW = DataSource(
    "lfw",
    "faces of people with 14 pictures or more, cropped to 32x32 colour; the class is the person",
    "Huang et al. 2007; prepared as in Wei et al. 2020 (CPL)",
    embedded=False,
    read=read,
    read_at=read,
    files=(StandardFile(("lfw",)),),
    downloads=(
        Download(
            "https://ndownloader.figshare.com/files/5976018",
            "lfw.tgz",
            "sha256:055f7d9c632d7370e6fb4afc7468d40f970c34a80d4c6f50ffec63f5a8d536c0",
            180566744,
            unpacks_to="lfw",
        ),
    ),
)
