"""Crops of colour photographs that come inside scikit-image and scikit-learn; the class is the photograph.

Each photograph is cut in two before anything else happens: one part gives the public crops, the other the
victims, so the two share no pixel. Within a part, windows of several sizes slide over it and overlap. A size behind the
name (`photos64:size=128`) shows the same windows in more or fewer pixels, always from the photograph itself.
"""

from __future__ import annotations

import importlib.util
import itertools
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from leakgauge.data._dataset import IMAGENET_MEAN, IMAGENET_STD, Dataset, DataSource
from leakgauge.data.files import read_image
from leakgauge.types import DataSpec

ZOOMS = (1.0, 0.8, 0.65, 0.5)  # window side, as a share of the part's shorter side
STRIDE = 1 / 4  # of the window
LEAST_DEVIATION = 0.08  # of the liveliest channel, in [0, 1]; flatter crops (sky, paper) show a viewer nothing
MOST_CROPS = 60  # of one photograph, evenly thinned, so that none outweighs the others

_Box = tuple[int, int, int, int]  # left, top, right, bottom
_Pixels = NDArray[np.uint8]  # (H, W, 3)


@dataclass(frozen=True)
class _Photo:
    package: str
    file: str
    test_part: str  # the part that shows the subject best is attacked
    share: float = 0.6  # how much of the photograph that part is


_PHOTOS = (
    _Photo("skimage", "data/astronaut.png", "top"),
    _Photo("skimage", "data/chelsea.png", "right"),
    _Photo("sklearn", "datasets/images/china.jpg", "left"),
    _Photo("skimage", "data/coffee.png", "right"),
    _Photo("sklearn", "datasets/images/flower.jpg", "right"),
    _Photo("skimage", "data/ihc.png", "top", share=0.5),
    _Photo("skimage", "data/motorcycle_left.png", "right"),
    _Photo("skimage", "data/retina.jpg", "left", share=0.5),
    _Photo("skimage", "data/rocket.jpg", "right"),
)


def read(root: Path | None, split: str, shown_at: int | None = None, *, size: int) -> Dataset:  # noqa: ARG001
    """Windows are chosen as they look at `size` pixels, and shown at `shown_at` if that is given."""
    shown_at = shown_at or size
    crops: list[Tensor] = []
    labels: list[int] = []
    for label, photo in enumerate(_PHOTOS):
        part = _part(photo, split)
        found = [(box, crop) for box in _windows(part) if _is_lively(crop := _crop(part, box, size))]
        kept = np.linspace(0, len(found) - 1, min(len(found), MOST_CROPS)).round().astype(int)
        for box, crop in (found[i] for i in kept):
            shown = crop if shown_at == size else _crop(part, box, shown_at)
            crops.append(torch.from_numpy(shown).permute(2, 0, 1))
        labels += [label] * len(kept)
    pictures = torch.stack(crops)  # (M, 3, shown_at, shown_at)
    shape = (3, shown_at, shown_at)
    spec = DataSpec(f"photos{size}", shape, len(_PHOTOS), "image", mean=IMAGENET_MEAN, std=IMAGENET_STD)
    return Dataset(spec, pictures, torch.tensor(labels), origins=torch.tensor(labels))


def _part(photo: _Photo, split: str) -> Image.Image:
    """The public or the private part of a photograph, at full resolution."""
    package = importlib.util.find_spec(photo.package)  # finds the folder without the slow import
    assert package
    assert package.submodule_search_locations
    image = read_image(Path(package.submodule_search_locations[0]) / photo.file)
    width, height = image.size
    along_width = photo.test_part in ("left", "right")
    along = width if along_width else height
    test_first = photo.test_part in ("left", "top")
    cut = round(along * (photo.share if test_first else 1 - photo.share))
    start, stop = (0, cut) if test_first == (split == "test") else (cut, along)
    return image.crop((start, 0, stop, height) if along_width else (0, start, width, stop))


def _windows(part: Image.Image) -> list[_Box]:
    """Squares of several sizes over the part."""
    boxes = []
    for side in (round(min(part.size) * zoom) for zoom in ZOOMS):
        corners = itertools.product(_starts(part.height, side), _starts(part.width, side))
        boxes += [(left, top, left + side, top + side) for top, left in corners]
    return boxes


def _crop(part: Image.Image, box: _Box, size: int) -> _Pixels:
    """One window, shrunk with antialiasing to (size, size, 3) bytes."""
    return np.array(part.crop(box).resize((size, size), Image.Resampling.LANCZOS, reducing_gap=2.0))


def _is_lively(crop: _Pixels) -> bool:
    return bool(crop.std((0, 1)).max() / 255 >= LEAST_DEVIATION)


def _starts(length: int, side: int) -> list[int]:
    """Evenly spread first pixels, so that the last window ends with the picture."""
    windows = 1 + round((length - side) / (side * STRIDE))
    return [round(s) for s in np.linspace(0, length - side, windows)]


def _source(size: int) -> DataSource:
    return DataSource(
        f"photos{size}",
        f"crops of nine colour photographs, {size}x{size}; inside scikit-image and scikit-learn",
        "public photographs, NASA and others, shipped with scikit-image and scikit-learn",
        read=partial(read, size=size),
        embedded=True,
        read_at=partial(read, size=size),
    )


PHOTOS32 = _source(32)
PHOTOS64 = _source(64)
