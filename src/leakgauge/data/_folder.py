"""A folder of images as a data set: FOLDER/CLASS/image.png, or FOLDER/image.png for a single class."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from leakgauge.data._arrays import own_spec
from leakgauge.data._dataset import Dataset
from leakgauge.data._halves import half
from leakgauge.data._images import SUFFIXES, centre_square, read_image, stack
from leakgauge.errors import BadInput


def from_folder(folder: Path, size: int, split: str) -> Dataset:
    """Centred squares resized to `size`; classes are the sub-folders, by name; half of each is public."""
    if not 4 <= size <= 1024:
        raise BadInput("size", allowed="between 4 and 1024 pixels", got=size, do="choose a value in that range")
    groups = [p for p in sorted(folder.iterdir()) if p.is_dir() and not p.name.startswith(".") and _images(p)]
    flat = _images(folder)
    if bool(groups) == bool(flat):
        raise BadInput(
            f"folder {str(folder)!r}",
            allowed="images, or one sub-folder of images per class",
            got="both" if flat else "no images",
            do=f"use files ending in {' '.join(sorted(SUFFIXES))}",
        )
    paths = flat or [image for group in groups for image in _images(group)]
    class_of = {group: label for label, group in enumerate(groups)}
    labels = np.array([class_of.get(path.parent, 0) for path in paths], dtype=np.int64)
    index = half(labels, split)
    name = folder.resolve().name
    if len(index) == 0:
        raise BadInput(
            f"folder {str(folder)!r}",
            allowed="at least two images of a class, one of them public",
            got=f"{len(paths)}",
            do="add images",
        )
    images = stack([centre_square(read_image(paths[i]), size) for i in index])
    # One class alone would make cross-entropy, and with it every gradient, zero: so at least two outputs.
    return Dataset(own_spec(name, (3, size, size), max(2, len(groups))), images, torch.from_numpy(labels[index]))


def _images(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and p.is_file())
