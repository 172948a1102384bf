"""Any data a user may name: a known set, a folder of images, an .npz, or a factory of their own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from leakgauge import catalog
from leakgauge.data._arrays import from_arrays, from_npz, half_of
from leakgauge.data._dataset import Dataset, check_split, resized
from leakgauge.data._folder import from_folder
from leakgauge.errors import BadInput

DEFAULT_SIZE = 32  # of pictures in a folder
SMALLEST, LARGEST = 8, 512  # pixels a side that a known set can be resampled to


def load(spec: str, split: str = "test", root: Path | None = None) -> Dataset:
    """One split of `digits`, `lfw:size=64`, `FOLDER`, `FOLDER:size=64`, `FILE.npz`, `FILE.py:FACTORY` ...

    "train" is what an attacker may hold as public data, "test" is where victims come from; they never
    share a sample. `root` is the folder with the downloaded sets, if it is not the usual one. A known
    name comes before a folder of the same name; write `./NAME` for the folder.
    """
    check_split(split)
    name, has_option, option = spec.partition(":")
    if name in catalog.find("data"):
        return _known_data(name, option, split, root) if has_option else _read(name, split, root)
    own = _own_data(spec, split)
    return _read(spec, split, root) if own is None else own  # refuses an unknown name


def load_whole(spec: str) -> tuple[Dataset, Dataset | None]:
    """All samples of the user's own arrays in their order, and public ones where a factory knows `split`."""
    if spec.endswith(".npz"):
        return from_npz(Path(spec), None), None
    factory = catalog.own(spec)
    if "split" in inspect.signature(factory).parameters:
        return _from_factory(spec, factory, "test"), _from_factory(spec, factory, "train")
    return _from_factory(spec, factory, None), None


def _read(name: str, split: str, root: Path | None) -> Dataset:
    dataset: Dataset = catalog.get("data", name).read(root, split)
    return dataset


def _known_data(name: str, option: str, split: str, root: Path | None) -> Dataset:
    """A known set with what stands behind its name: `size=64`, at the best resolution that the source has."""
    key, _, text = option.partition("=")
    if key != "size":
        raise BadInput(
            f"data {name}:{option}", allowed="NAME or NAME:size=PIXELS", got=repr(option), do=f"write {name}:size=64"
        )
    size = _pixels(text, f"{name}:size=64")
    if not SMALLEST <= size <= LARGEST:
        allowed = f"between {SMALLEST} and {LARGEST} pixels"
        raise BadInput("size", allowed=allowed, got=size, do="choose a value in that range")
    read_at = catalog.get("data", name).read_at
    dataset = read_at(root, split, size) if read_at else _read(name, split, root)
    return resized(dataset, f"{name}:size={size}", size)


def _own_data(spec: str, split: str) -> Dataset | None:
    """The user's own files or code; None if `spec` does not look like any."""
    path, has_size, size = spec.partition(":size=")
    if has_size:
        return from_folder(_existing_folder(path), _pixels(size, "FOLDER:size=32"), split)
    if path.endswith(".npz"):
        return from_npz(Path(path), split)
    if catalog.is_own(spec):
        return _from_factory(spec, catalog.own(spec), split)
    if "/" in path or Path(path).is_dir():
        return from_folder(_existing_folder(path), DEFAULT_SIZE, split)
    return None


def _pixels(text: str, example: str) -> int:
    if not text.isdecimal():
        raise BadInput("size", allowed="a whole number of pixels", got=repr(text), do=f"write {example}")
    return int(text)


def _existing_folder(path: str) -> Path:
    if not Path(path).is_dir():
        raise BadInput(f"data {path!r}", allowed="an existing folder", got="none there", do="check the path")
    return Path(path)


def _from_factory(spec: str, factory: Callable[..., Any], split: str | None) -> Dataset:
    """What the user's factory returns: a Dataset, or (inputs, labels).

    A factory with a `split` parameter splits for itself; otherwise half of each class is public. None takes all.
    """
    try:
        splits_itself = "split" in inspect.signature(factory).parameters
        made = factory(split=split) if splits_itself else factory()
    except Exception as error:
        raise BadInput(
            f"data {spec!r}",
            allowed="a function that can be called",
            got=f"{type(error).__name__}: {error}",
            do="mend it, or see --debug",
        ) from error
    if isinstance(made, Dataset):
        return made if splits_itself or split is None else half_of(made, split)
    if not isinstance(made, (tuple, list)) or len(made) != 2:
        raise BadInput(
            f"what {spec!r} returns",
            allowed="(inputs, labels) or a leakgauge.data.Dataset",
            got=type(made).__name__,
            do="return two arrays",
        )
    name = spec.rpartition(":")[2]
    return from_arrays(name, made[0], made[1], None if splits_itself else split)
