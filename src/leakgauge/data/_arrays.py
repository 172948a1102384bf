"""Arrays from a user (an .npz file, a factory) into a data set, with the usual layouts recognised."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from leakgauge.data._dataset import IMAGENET_MEAN, IMAGENET_STD, Dataset
from leakgauge.data._halves import half
from leakgauge.errors import BadInput, Unreadable
from leakgauge.reading.tensors import read_npz
from leakgauge.types import DataSpec

MOST_CLASSES = 100_000  # a larger label is a mistake, and would ask for a huge last layer
INPUT_KEYS, LABEL_KEYS = ("inputs", "x", "images"), ("labels", "y")


def from_npz(path: Path, split: str | None) -> Dataset:
    """An .npz with inputs (or x, images) and labels (or y); half of each class is the public split. None takes all.

    A number `classes` in it says how many there are where not all of them occur.
    """
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
    return from_arrays(path.stem, inputs, labels, split, _classes(path, arrays.get("classes")))


def from_arrays(name: str, inputs: Any, labels: Any, split: str | None, classes: int = 0) -> Dataset:
    """Images (M, C, H, W), (M, H, W, C) or (M, H, W), or tables (M, features). `split` None takes all.

    There are as many classes as the largest label asks for, or `classes` if that is more.
    """
    x, y = _array(name, "inputs", inputs), _array(name, "labels", labels)
    refuse_labels(name, y.shape, not np.issubdtype(y.dtype, np.integer), len(x), y.dtype)
    y = y.astype(np.int64)
    if not 0 <= int(y.min()) <= int(y.max()) < MOST_CLASSES:
        raise BadInput(
            f"labels of {name!r}", allowed=f"0 to {MOST_CLASSES - 1}", got="others", do="number the classes from 0"
        )
    x = _channels_first(name, x)
    # One class alone would make cross-entropy, and with it every gradient, zero: so at least two outputs.
    spec = own_spec(name, x.shape[1:], max(2, int(y.max()) + 1, classes))
    index = np.arange(len(y)) if split is None else half(y, split)
    return Dataset(spec, torch.from_numpy(_scaled_type(name, x)[index]), torch.from_numpy(y[index]))


def refuse_labels(name: str, shape: tuple[int, ...], fractions: bool, samples: int, dtype: Any = "numbers") -> None:
    """One class number for each sample is what can be audited today."""
    if len(shape) == 1 and not fractions and shape[0] == samples > 0:
        return
    do = "give one class number per sample"
    if fractions or len(shape) > 1:
        do += "; regression, several labels a sample and labels of sequences cannot be audited yet"
    raise BadInput(
        f"labels of {name!r}",
        allowed=f"{samples or 'some'} whole numbers, one per sample",
        got=f"{dtype} of shape {tuple(shape)}",
        do=do,
    )


def refuse_kind(name: str, shape: tuple[int, ...], fractions: bool) -> None:
    """Pictures (1 or 3, H, W) and rows of a table, as fractions, are what can be audited today."""
    if not fractions:
        raise BadInput(
            f"inputs of {name!r}",
            allowed="floats between 0 and 1",
            got="whole numbers",
            do="scale bytes to [0, 1]; tokens cannot be audited yet, but what an embedding makes of them can, as a row",
        )
    if len(shape) == 1 or (len(shape) == 3 and shape[0] in (1, 3)):
        return
    do = "reshape them, and back inside the model"
    if len(shape) == 2:
        do = f"give series as pictures of shape {(1, *shape)}, and let the model drop the first axis again"
    raise BadInput(f"inputs of {name!r}", allowed="(N, features) or (N, 1 or 3, H, W)", got=("N", *shape), do=do)


def own_spec(name: str, shape: tuple[int, ...], classes: int) -> DataSpec:
    """For data without published channel constants: ImageNet's, or their average for grey."""
    if len(shape) == 1:
        return DataSpec(name, tuple(shape), classes, "tabular")
    grey = shape[0] == 1
    mean, std = ((0.449,), (0.226,)) if grey else (IMAGENET_MEAN, IMAGENET_STD)
    return DataSpec(name, tuple(shape), classes, "image", mean=mean, std=std)


def _classes(path: Path, told: Any) -> int:
    if told is None:
        return 0
    if told.ndim or not np.issubdtype(told.dtype, np.integer) or not 0 < int(told) <= MOST_CLASSES:
        raise BadInput(
            f"classes in {str(path)!r}",
            allowed=f"one whole number from 1 to {MOST_CLASSES}",
            got=f"{told.dtype} of shape {told.shape}",
            do="write classes=10, say, or leave it out",
        )
    return int(told)


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
    several = isinstance(values, (tuple, list, dict)) and any(isinstance(v, (Tensor, np.ndarray)) for v in _in(values))
    try:
        array = None if several else np.asarray(values)
    except ValueError:  # rows of several lengths
        array = None
    if array is None or array.ndim == 0 or array.dtype.hasobject:
        do = "put several inputs into one array that the model takes apart" if several else "convert it first"
        got = f"{type(values).__name__} of {len(values)}" if several else type(values).__name__
        raise BadInput(f"{what} of {name!r}", allowed="one array of numbers", got=got, do=do)
    return array


def _in(values: Any) -> Iterable[Any]:
    return values.values() if isinstance(values, dict) else values


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
        do="scale them to [0, 1]; tokens cannot be audited yet, but what an embedding makes of them can, as a row",
    )
