"""A labelled data set in memory: its resolution, its splits and values, and where it comes from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from leakgauge.errors import BadInput
from leakgauge.types import ONE_CLASS, DataSpec

SPLITS = ("train", "test")  # train is public; victims are drawn from test

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples and labels of one split. Images stay bytes until they are taken: a quarter of the memory."""

    spec: DataSpec
    inputs: Tensor  # (M, *shape), uint8 in 0..255, or float32 in [0, 1]
    labels: Tensor  # (M,), int64
    resample: bool = False  # stored pictures have another resolution than `spec`; `take` resamples them
    origins: Tensor | None = None  # (M,) the photograph that each was cut from; None if no two share one
    clients: tuple[int, ...] = ()  # samples of each client, one client after another; none if they are not told apart

    def __post_init__(self) -> None:
        what = f"data set {self.spec.name!r}"
        if self.inputs.numel() == 0:
            raise BadInput(what, allowed="at least one sample", got="none", do="give it more samples")
        own = tuple(self.inputs.shape[1:])
        if own != self.spec.shape and not (self.resample and len(own) == 3 and own[0] == self.spec.shape[0]):
            allowed = f"of shape {self.spec.shape}"
            raise BadInput(f"{what}: each sample", allowed=allowed, got=own, do="give all samples this shape")
        _check_values(what, self.inputs)
        if self.spec.target == ONE_CLASS:
            _check_labels(what, self.labels, len(self.inputs), self.spec.classes)
        elif self.labels.shape != (len(self.inputs), *self.spec.target_shape):
            wanted, got = (len(self.inputs), *self.spec.target_shape), tuple(self.labels.shape)
            raise BadInput(f"{what}: labels", allowed=f"of shape {wanted}", got=got, do="give one row per sample")

    def __len__(self) -> int:
        return len(self.labels)

    def of_clients_with(self, samples: int) -> Dataset:
        """Those of the clients who hold as many samples; all, where clients are not told apart or none does."""
        if samples not in self.clients:
            return self
        kept = torch.tensor([own == samples for own in self.clients]).repeat_interleave(torch.tensor(self.clients))
        alike = tuple(own for own in self.clients if own == samples)
        return dataclasses.replace(self, inputs=self.inputs[kept], labels=self.labels[kept], clients=alike)

    def take(self, indices: Sequence[int] | Tensor) -> tuple[Tensor, Tensor]:
        """Inputs (..., *shape) as float32 in [0, 1] and labels (...), shaped as `indices` is."""
        index = torch.as_tensor(indices, dtype=torch.int64)
        inputs = self.inputs[index]
        inputs = inputs.float() / 255 if inputs.dtype == torch.uint8 else inputs
        return _resampled(inputs, self.spec.shape) if self.resample else inputs, self.labels[index]


@dataclass(frozen=True)
class Download:
    """One file of a data set on its publisher's server."""

    url: str
    path: str  # where it is kept, relative to the data folder; archives are removed once unpacked
    checksum: str  # "sha256:..." of the file as downloaded
    size: int  # bytes
    unpacks_to: str = ""  # for archives: the folder inside, which lands in the data folder


@dataclass(frozen=True)
class StandardFile:
    """A file or folder that a reader looks for, and the published checksum of its contents, if any."""

    paths: tuple[str, ...]  # relative to the data folder, or absolute; the first that exists counts
    checksum: str = ""  # of the contents: behind the decompression for .gz
    optional: bool = False  # the data set can be read without it


@dataclass(frozen=True)
class DataSource:
    """A named data set: what it is, how to read it, where to get it."""

    catalogued: ClassVar[bool] = True

    name: str
    summary: str
    paper: str  # who made it
    read: Callable[[Path | None, str], Dataset]  # (data folder or None for the usual one, a split of `SPLITS`)
    embedded: bool = False  # True if it comes with the installed packages
    samples: tuple[int, int] | None = None  # train and test, as published; None if it depends
    files: tuple[StandardFile, ...] = ()
    downloads: tuple[Download, ...] = ()
    # As `read`, at this many pixels a side or the most there are; None if `read` gives the full resolution.
    read_at: Callable[[Path | None, str, int], Dataset] | None = None


def resized(dataset: Dataset, name: str, size: int) -> Dataset:
    """The same pictures, `size` pixels a side, under another name. Only those that are taken get resampled."""
    spec = dataset.spec
    if spec.kind != "image":
        allowed = "a set of images to have a size"
        raise BadInput(f"data {name!r}", allowed=allowed, got="a table", do=f"write {spec.name} alone")
    at_size = dataclasses.replace(spec, name=name, shape=(spec.shape[0], size, size))
    return dataclasses.replace(dataset, spec=at_size, resample=tuple(dataset.inputs.shape[1:]) != at_size.shape)


def _resampled(images: Tensor, shape: tuple[int, ...]) -> Tensor:
    """(..., C, h, w) -> (..., *shape), bicubic; shrinking smooths first, and values are clipped to [0, 1]."""
    flat = F.interpolate(images.reshape(-1, *images.shape[-3:]), shape[1:], mode="bicubic", antialias=True)
    return flat.clamp(0, 1).reshape(*images.shape[:-3], *shape)


def half(labels: NDArray[np.int64], split: str, test_every: int = 2) -> NDArray[np.int64]:
    """Indices of one split of data without its own: of each class every `test_every`-th sample, the first too, is test.

    Going by class keeps both splits balanced; going by position needs no seed.
    """
    is_test = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        is_test[np.flatnonzero(labels == label)[::test_every]] = True
    return np.flatnonzero(is_test == (split == "test"))


def min_max(values: NDArray[np.float64], public: NDArray[np.float64]) -> NDArray[np.float32]:
    """Scale each column of a table into [0, 1] by the range of the public rows; what lies outside is clipped.

    The private rows take no part in the ranges, as they would not in a federation.
    """
    low, high = public.min(0), public.max(0)
    width = np.where(high > low, high - low, 1.0)
    scaled: NDArray[np.float32] = np.clip((values - low) / width, 0, 1).astype(np.float32)
    return scaled


def _check_values(what: str, inputs: Tensor) -> None:
    what = f"{what}: inputs"
    if inputs.dtype == torch.uint8:
        return
    if inputs.dtype != torch.float32:
        raise BadInput(what, allowed="uint8 or float32", got=inputs.dtype, do="convert them first")
    if not bool(torch.isfinite(inputs).all()):
        raise BadInput(what, allowed="finite", got="nan or inf", do="remove or fill those samples")
    low, high = float(inputs.min()), float(inputs.max())
    if low < 0 or high > 1:
        # The values themselves are not in the message: messages end up in logs, and these are private.
        got = "some below 0" if low < 0 else "some above 1"
        raise BadInput(what, allowed="between 0 and 1", got=got, do="scale them, for bytes divide by 255")


def _check_labels(what: str, labels: Tensor, samples: int, classes: int) -> None:
    what = f"{what}: labels"
    if labels.dtype != torch.int64 or labels.shape != (samples,):
        allowed, got = (
            f"{samples} whole numbers (int64), one per sample",
            f"{labels.dtype} of shape {tuple(labels.shape)}",
        )
        raise BadInput(what, allowed=allowed, got=got, do="give one class number per sample")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        got = "some below 0" if low < 0 else "larger ones"
        raise BadInput(what, allowed=f"between 0 and {classes - 1}", got=got, do="number the classes from 0")
