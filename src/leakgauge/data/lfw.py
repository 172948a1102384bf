"""Labeled Faces in the Wild, prepared as CPL does: frequent people, the middle of the picture, 32 × 32.

`lfw:size=64` and `lfw:size=128` come from the same middle, which has 128 pixels a side; larger sizes are enlarged.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from leakgauge.data._dataset import IMAGENET_MEAN, IMAGENET_STD, Dataset, DataSource, Download, StandardFile, half
from leakgauge.data.files import damaged, read_image, require, stack
from leakgauge.errors import BadInput
from leakgauge.types import DataSpec

_LEAST_IMAGES = 14  # people with fewer are left out
_CROP, _CROP_SIZE = (61, 61, 189, 189), 128  # pixels 61 to 188 both ways
_TEST_EVERY = 4  # of each person's images, by name: one in four is a victim


def read(root: Path | None, split: str, size: int = 32) -> Dataset:
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


_SHA256 = "sha256:055f7d9c632d7370e6fb4afc7468d40f970c34a80d4c6f50ffec63f5a8d536c0"
LFW = DataSource(
    "lfw",
    "faces of people with 14 pictures or more, cropped to 32x32 colour; the class is the person",
    "Huang et al. 2007; prepared as in Wei et al. 2020 (CPL)",
    read=read,
    read_at=read,
    files=(StandardFile(("lfw",)),),
    downloads=(Download("https://ndownloader.figshare.com/files/5976018", "lfw.tgz", _SHA256, 180566744, "lfw"),),
)
