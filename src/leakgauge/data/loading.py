"""Any data a user may name: a known set, a folder of images, an .npz, or a factory of their own."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from leakgauge import catalog
from leakgauge.data._dataset import IMAGENET_MEAN, IMAGENET_STD, SPLITS, Dataset, half, resized
from leakgauge.data._loaders import arrays_of, is_loader
from leakgauge.data._samples import from_samples
from leakgauge.data.files import SUFFIXES, read_image, stack
from leakgauge.errors import BadInput, Unreadable
from leakgauge.reading.tensors import read_npz
from leakgauge.types import ONE_CLASS, DataSpec

_DEFAULT_SIZE = 32  # of pictures in a folder
_LEAST_CLASSES = 2  # one alone would make cross-entropy, and with it every gradient, zero
_MOST_CLASSES = 100_000  # a larger label is a mistake, and would ask for a huge last layer
_INPUT_KEYS, _LABEL_KEYS = ("inputs", "x", "images"), ("labels", "y")
_EMBEDDED_TOKENS = "tokens cannot be audited yet, but what an embedding makes of them can, as a row"


def load(spec: str, split: str = "test", root: Path | None = None) -> Dataset:
    """One split of `digits`, `lfw:size=64`, `FOLDER`, `FOLDER:size=64`, `FILE.npz`, `FILE.py:FACTORY` ...

    "train" is what an attacker may hold as public data, "test" is where victims come from; they never
    share a sample. `root` is the folder with the downloaded sets, if it is not the usual one. A known
    name comes before a folder of the same name; write `./NAME` for the folder.
    """
    if split not in SPLITS:
        raise BadInput("split", allowed=f"one of {', '.join(SPLITS)}", got=repr(split), do="choose one of these")
    name, has_option, option = spec.partition(":")
    if name in catalog.find("data"):
        return _known_data(name, option, split, root) if has_option else _read(name, split, root)
    path, has_size, size = spec.partition(":size=")
    if has_size and not catalog.is_own(spec):
        return _from_folder(path, _pixels(size, "FOLDER:size=32", 4, 1024), split)
    if path.endswith(".npz"):
        return _from_npz(Path(path), split)
    if catalog.is_own(spec):
        return _from_factory(spec, split)
    if "/" in path or Path(path).is_dir():
        return _from_folder(path, _DEFAULT_SIZE, split)
    return _read(spec, split, root)  # refuses an unknown name


def load_whole(spec: str) -> tuple[Dataset, Dataset | None]:
    """All samples of the user's own arrays in their order, and public ones if a factory knows `split`."""
    if spec.endswith(".npz"):
        return _from_npz(Path(spec), None), None
    if "split" in inspect.signature(_factory_of(spec)[0]).parameters:
        return _from_factory(spec, "test"), _from_factory(spec, "train")
    return _from_factory(spec, None), None


def _read(name: str, split: str, root: Path | None) -> Dataset:
    dataset: Dataset = catalog.get("data", name).read(root, split)
    return dataset


def _known_data(name: str, option: str, split: str, root: Path | None) -> Dataset:
    """A known set with the option behind its name: `size=64`, at the best resolution that the source has."""
    key, _, text = option.partition("=")
    if key != "size":
        what, do = f"data {name}:{option}", f"write {name}:size=64"
        raise BadInput(what, allowed="NAME or NAME:size=PIXELS", got=repr(option), do=do)
    size = _pixels(text, f"{name}:size=64", 8, 512)
    read_at = catalog.get("data", name).read_at
    dataset = read_at(root, split, size) if read_at else _read(name, split, root)
    return resized(dataset, f"{name}:size={size}", size)


def _pixels(text: str, example: str, smallest: int, largest: int) -> int:
    if not text.isdecimal():
        raise BadInput("size", allowed="a whole number of pixels", got=repr(text), do=f"write {example}")
    if not smallest <= int(text) <= largest:
        allowed = f"between {smallest} and {largest} pixels"
        raise BadInput("size", allowed=allowed, got=int(text), do="choose a value in that range")
    return int(text)


# --- a folder of images ---------------------------------------------------------------------------------------------


def _from_folder(path: str, size: int, split: str) -> Dataset:
    """FOLDER/CLASS/image.png, or FOLDER/image.png for a single class; half of each class is public.

    Centred squares resized to `size`; classes are the sub-folders, by name.
    """
    folder, what = Path(path), f"folder {path!r}"
    if not folder.is_dir():
        raise BadInput(f"data {path!r}", allowed="an existing folder", got="none there", do="check the path")
    flat = _images(folder)
    groups = [
        found for p in sorted(folder.iterdir()) if p.is_dir() and not p.name.startswith(".") and (found := _images(p))
    ]
    if bool(groups) == bool(flat):
        got, do = "both" if flat else "no images", f"use files ending in {' '.join(sorted(SUFFIXES))}"
        raise BadInput(what, allowed="images, or one sub-folder of images per class", got=got, do=do)
    groups = groups or [flat]
    paths = [image for group in groups for image in group]
    labels = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    index = half(labels, split)
    if len(index) == 0:
        allowed = "at least two images of a class, one of them public"
        raise BadInput(what, allowed=allowed, got=len(paths), do="add images")
    images = stack([_centre_square(read_image(paths[i]), size) for i in index])
    spec = own_spec(folder.resolve().name, (3, size, size), max(_LEAST_CLASSES, len(groups)))
    return Dataset(spec, images, torch.from_numpy(labels[index]))


def _images(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and p.is_file())


def _centre_square(image: Image.Image, size: int) -> Image.Image:
    """The largest centred square, resized with antialiasing."""
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    return image.crop((left, top, left + side, top + side)).resize((size, size), Image.Resampling.LANCZOS)


# --- arrays: an .npz file, a factory --------------------------------------------------------------------------------


def _from_npz(path: Path, split: str | None) -> Dataset:
    """An .npz with inputs (or x, images) and labels (or y); half of each class is the public split. None takes all.

    A number `classes` in it gives the count if not all of them occur.
    """
    try:
        arrays = read_npz(path)
    except Unreadable as error:
        allowed, do = (
            "a readable .npz without pickled objects",
            "write it with numpy.savez(path, inputs=..., labels=...)",
        )
        raise BadInput(f"file {str(path)!r}", allowed=allowed, got=error, do=do) from error
    inputs, labels = (_pick(path, arrays, keys) for keys in (_INPUT_KEYS, _LABEL_KEYS))
    return _from_arrays(path.stem, inputs, labels, split, _classes(path, arrays.get("classes")))


def _classes(path: Path, given: Any) -> int:
    if given is None:
        return 0
    if given.ndim or not np.issubdtype(given.dtype, np.integer) or not 0 < int(given) <= _MOST_CLASSES:
        allowed, got = f"one whole number from 1 to {_MOST_CLASSES}", f"{given.dtype} of shape {given.shape}"
        raise BadInput(
            f"classes in {str(path)!r}", allowed=allowed, got=got, do="write classes=10, say, or leave it out"
        )
    return int(given)


def _pick(path: Path, arrays: dict[str, Any], keys: tuple[str, ...]) -> Any:
    for key in keys:
        if key in arrays:
            return arrays[key]
    allowed, got = f"one with an array called {' or '.join(keys)}", ", ".join(arrays) or "no arrays"
    raise BadInput(f"file {str(path)!r}", allowed=allowed, got=got, do="rename the array")


def _factory_of(spec: str) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The user's factory and its arguments, `FILE.py:FACTORY[:key=value,...]`."""
    head, _, rest = spec.partition(":")
    thing, _, fields = rest.partition(":")
    return catalog.own(f"{head}:{thing}"), catalog.arguments(f"data {spec!r}", fields)


def _from_factory(spec: str, split: str | None) -> Dataset:
    """What the user's factory returns: a Dataset, (inputs, labels), or what their training loop reads.

    A factory with a `split` parameter splits for itself; otherwise half of each class is public. None takes all.
    """
    factory, arguments = _factory_of(spec)
    name = spec.split(":")[1]
    try:
        splits_itself = "split" in inspect.signature(factory).parameters
        made = factory(**arguments, **({"split": split} if splits_itself else {}))
    except Exception as error:
        got, do = f"{type(error).__name__}: {error}", "correct it, or see --debug"
        raise BadInput(f"data {spec!r}", allowed="a function that can be called", got=got, do=do) from error
    split = None if splits_itself else split
    if isinstance(made, Dataset):
        if split is None:
            return made
        return _half_of(made, split)
    if is_loader(made):
        inputs, labels, clients = arrays_of(name, made)
        read = _from_arrays(name, inputs, labels, split)
        return dataclasses.replace(read, clients=clients) if split is None else read
    if not isinstance(made, (tuple, list)) or len(made) != 2:
        allowed = "(inputs, labels), a DataLoader or a leakgauge.data.Dataset"
        raise BadInput(f"what {spec!r} returns", allowed=allowed, got=type(made).__name__, do="return two arrays")
    return _from_arrays(name, made[0], made[1], split)


def _from_arrays(name: str, inputs: Any, labels: Any, split: str | None, classes: int = 0) -> Dataset:
    """Images (M, C, H, W), (M, H, W, C) or (M, H, W), or tables (M, features). `split` None takes all.

    There are as many classes as the largest label asks for, or `classes` if that is more.
    """
    _refuse_unequal(name, inputs if isinstance(inputs, dict) else {"": inputs})
    if not _usual(inputs, labels):
        named = inputs if isinstance(inputs, dict) else {"": inputs}
        arrays = {key: _array(name, f"input {key!r}" if key else "inputs", value) for key, value in named.items()}
        whole = from_samples(name, arrays, _array(name, "labels", labels))
        return whole if split is None else _half_of(whole, split)
    x, y = _array(name, "inputs", inputs), _array(name, "labels", labels)
    if len(y) != len(x) or not len(x):
        do = "give one class number per sample"
        raise BadInput(
            f"labels of {name!r}", allowed=f"{len(x) or 'some'} whole numbers, one per sample", got=len(y), do=do
        )
    y = y.astype(np.int64)
    if not 0 <= int(y.min()) <= int(y.max()) < _MOST_CLASSES:
        allowed, do = f"0 to {_MOST_CLASSES - 1}", "number the classes from 0"
        raise BadInput(f"labels of {name!r}", allowed=allowed, got="others", do=do)
    x = _as_float_or_bytes(name, _channels_first(name, x))
    spec = own_spec(name, x.shape[1:], max(_LEAST_CLASSES, int(y.max()) + 1, classes))
    index = np.arange(len(y)) if split is None else half(y, split)
    return Dataset(spec, torch.from_numpy(x[index]), torch.from_numpy(y[index]))


def samples_of(name: str, inputs: Any, labels: Any) -> Dataset:
    """A batch that is at hand, of any kind."""
    return _from_arrays(name, inputs, labels, None)


def _usual(inputs: Any, labels: Any) -> bool:
    """Pictures or rows from 0 to 1 with one class each? They keep their shape; all else becomes flat."""
    if isinstance(inputs, dict):
        return False
    x, y = _array("", "inputs", inputs), _array("", "labels", labels)
    if y.ndim != 1 or not np.issubdtype(y.dtype, np.integer):
        return False
    if x.dtype == np.uint8:
        return x.ndim in (3, 4)
    fitting = x.ndim in (2, 3) or (x.ndim == 4 and (x.shape[1] in (1, 3) or x.shape[3] in (1, 3)))
    if x.dtype.kind in "US" or not np.issubdtype(x.dtype, np.floating) or not fitting:
        return x.dtype.kind not in "US" and (
            x.dtype == bool or x.dtype.hasobject or not np.issubdtype(x.dtype, np.integer)
        )
    return not x.size or not np.isfinite(x).all() or bool(x.min() >= 0 and x.max() <= 1)


def _half_of(dataset: Dataset, split: str) -> Dataset:
    """Half of each class, or every second sample if targets are no classes."""
    labels = dataset.labels.numpy()
    index = half(labels if dataset.spec.target == ONE_CLASS else np.zeros(len(labels), np.int64), split)
    return dataclasses.replace(dataset, inputs=dataset.inputs[index], labels=dataset.labels[index])


def _array(name: str, what: str, values: Any) -> NDArray[Any]:
    if isinstance(values, Tensor):
        values = values.detach().cpu().numpy()
    parts = values.values() if isinstance(values, dict) else values if isinstance(values, (tuple, list)) else ()
    several = any(isinstance(part, (Tensor, np.ndarray)) for part in parts) and not _stackable(parts)
    try:
        array = None if several else np.asarray(_stacked(values))
    except ValueError:
        array = None
    if array is None or array.ndim == 0 or array.dtype.hasobject:
        do = "put several inputs into one array that the model takes apart" if several else "convert it first"
        got = f"{type(values).__name__} of {len(values)}" if several else type(values).__name__
        raise BadInput(f"{what} of {name!r}", allowed="one array of numbers", got=got, do=do)
    return array


def _refuse_unequal(name: str, inputs: Mapping[str, Any]) -> None:
    """Samples of unequal length need to be padded, and a mask beside them that says which places are used."""
    if not inputs:
        raise BadInput(f"inputs of {name!r}", allowed="at least one array", got="none", do="name the model's arguments")
    for key, values in inputs.items():
        if not isinstance(values, (list, tuple)) or not all(
            isinstance(v, (list, tuple, Tensor, np.ndarray)) for v in values
        ):
            continue
        lengths = {len(v) if isinstance(v, (list, tuple)) else (v.shape[0] if v.ndim else 1) for v in values}
        if len(lengths) > 1:
            what = f"input {key!r} of {name!r}" if key else f"inputs of {name!r}"
            do = (
                f"pad them to {max(lengths)} and give a dictionary by the model's argument names: the padded array, and"
            )
            do += " one of 0 and 1 whose name contains 'mask', such as attention_mask"
            got = f"lengths from {min(lengths)} to {max(lengths)}"
            raise BadInput(what, allowed="as long as one another", got=got, do=do)


def _stackable(parts: Any) -> bool:
    """Samples in a list, each an array of the same shape?"""
    return len({tuple(getattr(part, "shape", ())) for part in parts}) == 1 and len(list(parts)) > 3


def _stacked(values: Any) -> Any:
    if isinstance(values, (list, tuple)) and values and all(isinstance(v, Tensor) for v in values):
        return np.stack([v.detach().cpu().numpy() for v in values])
    return values


def _channels_first(name: str, x: NDArray[Any]) -> NDArray[Any]:
    if x.ndim == 3:
        return x[:, None]  # (M, H, W): grey
    if x.ndim == 2 or (x.ndim == 4 and x.shape[1] in (1, 3)):
        return x
    if x.ndim == 4 and x.shape[3] in (1, 3):
        return np.moveaxis(x, 3, 1)
    allowed = "(M, 1 or 3, H, W), (M, H, W, 1 or 3), (M, H, W) or (M, features)"
    raise BadInput(f"inputs of {name!r}", allowed=allowed, got=x.shape, do="reshape them")


def _as_float_or_bytes(name: str, x: NDArray[Any]) -> NDArray[Any]:
    if x.dtype == np.uint8 and x.ndim == 4:
        return x
    if np.issubdtype(x.dtype, np.floating):
        return x.astype(np.float32)
    allowed, do = "uint8 (images only) or floats between 0 and 1", f"scale them to [0, 1]; {_EMBEDDED_TOKENS}"
    raise BadInput(f"inputs of {name!r}", allowed=allowed, got=x.dtype, do=do)


def own_spec(name: str, shape: tuple[int, ...], classes: int) -> DataSpec:
    """For data without published channel constants: ImageNet's, or their average for grey."""
    if len(shape) == 1:
        return DataSpec(name, tuple(shape), classes, "tabular")
    mean, std = ((0.449,), (0.226,)) if shape[0] == 1 else (IMAGENET_MEAN, IMAGENET_STD)
    return DataSpec(name, tuple(shape), classes, "image", mean=mean, std=std)
