"""Arrays from a user (an .npz file, a factory) into a data set, with the usual layouts recognised."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from leakgauge.data._dataset import IMAGENET_MEAN, IMAGENET_STD, Dataset
from leakgauge.data._halves import half
from leakgauge.errors import BadInput, Unreadable
from leakgauge.reading.npz import read_npz
from leakgauge.types import DataSpec

MOST_CLASSES = 100_000  # a larger label is a mistake, and would ask for a huge last layer
INPUT_KEYS, LABEL_KEYS = ("inputs", "x", "images"), ("labels", "y")


def from_npz(path: Path, split: str | None) -> Dataset:
    """An .npz with inputs (or x, images) and labels (or y); half of each class is the public split. None takes all."""
    try:
        arrays = read_npz(path)
    except Unreadable as error:
        raise BadInput(
            f"file {str(path)!r}",
            allowed="a readable .npz without pickled objects",
            got=error,
            do="write it with numpy.savez(path, inputs=..., labels=...)",
        ) from error
    inputs, labels = (_pick(path, arrays, keys) for keys in (INPUT_KEYS, LABEL_KEYS))
    return from_arrays(path.stem, inputs, labels, split)


def from_arrays(name: str, inputs: Any, labels: Any, split: str | None) -> Dataset:
    """Images (M, C, H, W), (M, H, W, C) or (M, H, W), or tables (M, features). `split` None takes all."""
    x, y = _array(name, "inputs", inputs), _array(name, "labels", labels)
    if y.ndim != 1 or not np.issubdtype(y.dtype, np.integer) or len(x) != len(y) or len(y) == 0:
        raise BadInput(
            f"labels of {name!r}",
            allowed=f"{len(x) or 'some'} whole numbers, one per sample",
            got=f"{y.dtype} of shape {y.shape}",
            do="give one class number per sample",
        )
    y = y.astype(np.int64)
    if not 0 <= int(y.min()) <= int(y.max()) < MOST_CLASSES:
        raise BadInput(
            f"labels of {name!r}", allowed=f"0 to {MOST_CLASSES - 1}", got="others", do="number the classes from 0"
        )
    x = _channels_first(name, x)
    # One class alone would make cross-entropy, and with it every gradient, zero: so at least two outputs.
    spec = own_spec(name, x.shape[1:], max(2, int(y.max()) + 1))
    index = np.arange(len(y)) if split is None else half(y, split)
    return Dataset(spec, torch.from_numpy(_scaled_type(name, x)[index]), torch.from_numpy(y[index]))


def own_spec(name: str, shape: tuple[int, ...], classes: int) -> DataSpec:
    """For data without published channel constants: ImageNet's, or their average for grey."""
    if len(shape) == 1:
        return DataSpec(name, tuple(shape), classes, "tabular")
    grey = shape[0] == 1
    mean, std = ((0.449,), (0.226,)) if grey else (IMAGENET_MEAN, IMAGENET_STD)
    return DataSpec(name, tuple(shape), classes, "image", mean=mean, std=std)


def _pick(path: Path, arrays: dict[str, Any], keys: tuple[str, ...]) -> Any:
    for key in keys:
        if key in arrays:
            return arrays[key]
    raise BadInput(
        f"file {str(path)!r}",
        allowed=f"one with an array called {' or '.join(keys)}",
        got=", ".join(arrays) or "no arrays",
        do="rename the array",
    )


def _array(name: str, what: str, values: Any) -> np.ndarray[Any, np.dtype[Any]]:
    if isinstance(values, Tensor):
        values = values.detach().cpu().numpy()
    array = np.asarray(values)
    if array.ndim == 0 or array.dtype.hasobject:
        raise BadInput(
            f"{what} of {name!r}",
            allowed="an array of numbers",
            got=type(values).__name__,
            do="convert it first",
        )
    return array


def _channels_first(name: str, x: np.ndarray[Any, np.dtype[Any]]) -> np.ndarray[Any, np.dtype[Any]]:
    if x.ndim == 3:
        return x[:, None]  # (M, H, W): grey
    if x.ndim == 2 or (x.ndim == 4 and x.shape[1] in (1, 3)):
        return x
    if x.ndim == 4 and x.shape[3] in (1, 3):
        return np.moveaxis(x, 3, 1)
    raise BadInput(
        f"inputs of {name!r}",
        allowed="(M, 1 or 3, H, W), (M, H, W, 1 or 3), (M, H, W) or (M, features)",
        got=x.shape,
        do="reshape them",
    )


def _scaled_type(name: str, x: np.ndarray[Any, np.dtype[Any]]) -> np.ndarray[Any, np.dtype[Any]]:
    if x.dtype == np.uint8 and x.ndim == 4:
        return x
    if np.issubdtype(x.dtype, np.floating):
        return x.astype(np.float32)
    raise BadInput(
        f"inputs of {name!r}",
        allowed="uint8 (images only) or floats between 0 and 1",
        got=x.dtype,
        do="scale them to [0, 1]",
    )
