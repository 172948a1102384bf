"""What a training loop reads (`torch.utils.data`) into arrays: inputs by name, and targets.

Mini-batches may be `(inputs, labels)` or dictionaries, as those of Hugging Face and Flower's apps are. Rows of several
lengths are padded. The order is one of its own and the same each time, whatever the loader draws.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as Rows

from leakgauge.data._samples import IGNORED
from leakgauge.errors import BadInput

LABELS = ("labels", "label", "y", "target", "targets", "fine_label")
PICTURES = ("inputs", "input", "x", "img", "image", "images", "pixel_values", "features", "data")
MOST = 10_000  # samples that are read of what may be a whole data set
_AT_ONCE = 256
_DO = "return batches as (inputs, labels) or as a dictionary with labels"


def is_loader(made: Any) -> bool:
    """Is it a loader or data set of torch, or several: (train, test), or one for each client in a list?"""
    first = made[0] if isinstance(made, tuple | list) and made else made
    return isinstance(first, DataLoader | Rows)


def arrays_of(name: str, made: Any) -> tuple[Any, Any, tuple[int, ...]]:
    """Inputs (an array, or arrays by name) and targets: of a tuple's first loader, or of all in a list.

    Of a list also how many samples each loader gave, for it is a client's.
    """
    loaders = made if isinstance(made, list) else [made[0] if isinstance(made, tuple) else made]
    inputs: dict[str, list[Tensor]] = {}
    targets: list[Tensor] = []
    counts = [0] * len(loaders)
    for place, batch in _batches(name, loaders):
        named, target = _taken_apart(name, batch)
        if inputs and named.keys() != inputs.keys():
            got = f"{', '.join(named)} after {', '.join(inputs)}"
            raise BadInput(f"batches of {name!r}", allowed="with the same inputs", got=got, do=_DO)
        for key, value in named.items():
            inputs.setdefault(key, []).append(value)
        targets.append(target)
        counts[place] += len(target)
        if sum(counts) >= MOST:
            break
    if not sum(counts):
        raise BadInput(f"loader of {name!r}", allowed="one with samples", got="none", do="check its data set")
    arrays = {key: _joined(values, 0)[:MOST] for key, values in inputs.items()}
    labels = _joined(targets, IGNORED)[:MOST]
    each = tuple(counts) if isinstance(made, list) and sum(counts) == len(labels) else ()
    return (arrays[""] if list(arrays) == [""] else arrays), labels, each


def _batches(name: str, loaders: Sequence[Any]) -> Iterator[tuple[int, Any]]:
    """Each with the place of its loader."""
    for place, loader in enumerate(loaders):
        rows = loader if isinstance(loader, DataLoader) else DataLoader(loader, batch_size=_AT_ONCE)
        with torch.random.fork_rng(devices=()), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of workers and pinned memory that this machine may lack
            torch.manual_seed(0)
            try:
                for batch in rows:
                    yield place, batch
            except BadInput:
                raise
            except Exception as error:
                got, do = f"{type(error).__name__}: {error}", "correct it, or see --debug"
                raise BadInput(f"loader of {name!r}", allowed="one that can be read", got=got, do=do) from error


def _taken_apart(name: str, batch: Any) -> tuple[dict[str, Tensor], Tensor]:
    if isinstance(batch, Mapping):
        tensors = {str(key): value for key, value in batch.items() if isinstance(value, Tensor)}
        found = [key for key in LABELS if key in tensors]
        if found and len(tensors) > 1:
            target = tensors.pop(found[0])
            only = len(tensors) == 1 and next(iter(tensors)) in PICTURES
            return ({"": next(iter(tensors.values()))} if only else tensors), target
        raise BadInput(f"batches of {name!r}", allowed="with inputs and labels", got=", ".join(tensors), do=_DO)
    if isinstance(batch, tuple | list) and len(batch) == 2 and isinstance(batch[1], Tensor):
        first = batch[0]
        if isinstance(first, Tensor):
            return {"": first}, batch[1]
        if isinstance(first, Mapping):
            return {str(k): v for k, v in first.items() if isinstance(v, Tensor)}, batch[1]
    got = type(batch).__name__ + (f" of {len(batch)}" if isinstance(batch, tuple | list) else "")
    raise BadInput(f"batches of {name!r}", allowed="pairs or dictionaries of tensors", got=got, do=_DO)


def _joined(values: Sequence[Tensor], filler: int) -> np.ndarray[Any, Any]:
    """(M, ...) of batches that may be padded to several lengths."""
    plain = [v.detach().cpu() for v in values]
    plain = [v.float() if v.dtype in (torch.bfloat16, torch.float16) else v for v in plain]
    if len({v.shape[1:] for v in plain}) > 1 and all(v.dim() == 2 for v in plain):
        longest = max(v.shape[1] for v in plain)
        plain = [F.pad(v, (0, longest - v.shape[1]), value=filler) for v in plain]
    array: np.ndarray[Any, Any] = torch.cat([v.as_subclass(Tensor) for v in plain]).numpy()
    return array
