"""Samples of any form into the one in which attacks search: several inputs, whole numbers, any range and shape.

What an array means is read off it: whole numbers are categories (tokens, where a sample is one row of many), truth
values and inputs that are called mask are masks, the rest are numbers, whose range is measured over all samples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from leakgauge.data._dataset import Dataset
from leakgauge.errors import BadInput
from leakgauge.types import CATEGORIES, MASK, NUMBERS, ONE_CLASS, QUANTITIES, SEQUENCE, SEVERAL_CLASSES, DataSpec, Part

MOST_CLASSES = 100_000  # a larger label is a mistake, and would ask for a huge last layer
LARGEST = 2**22  # numbers in one flat sample
IGNORED = -100  # a position of a sequence that counts for nothing; so does -1
_TOKENS = 4  # whole numbers in a row from which they are taken for a text
Array = np.ndarray[Any, np.dtype[Any]]


def from_samples(name: str, arrays: Mapping[str, Array], targets: Array) -> Dataset:
    """All samples, flat and from 0 to 1. Arrays by the names of the model's arguments, one alone under ""."""
    count = {len(array) for array in (*arrays.values(), targets)}
    if len(count) != 1:
        got = ", ".join(f"{key or 'inputs'}: {len(a)}" for key, a in (*arrays.items(), ("targets", targets)))
        raise BadInput(f"data {name!r}", allowed="as many rows in every array", got=got, do="give one row per sample")
    if not count or 0 in count:
        raise BadInput(f"data {name!r}", allowed="samples in every array", got="none", do="return some")
    parts = tuple(_part(name, key, array) for key, array in arrays.items())
    width = sum(part.width for part in parts)
    if width > LARGEST:
        do = "use fewer places or values; each place counts once for each value it may have"
        raise BadInput(f"inputs of {name!r}", allowed=f"at most {LARGEST:,} numbers a sample", got=f"{width:,}", do=do)
    flat = torch.cat([p.encode(torch.from_numpy(a)) for p, a in zip(parts, arrays.values(), strict=True)], 1)
    labels, target, classes = _targets(name, targets)
    single = parts[0] if len(parts) == 1 and parts[0].kind == NUMBERS else None
    spec = DataSpec(
        name,
        single.shape if single else (width,),
        classes,
        _kind(parts),
        parts=() if single and (single.low, single.high) == (0.0, 1.0) else parts,
        target=target,
        target_shape=tuple(labels.shape[1:]),
    )
    return Dataset(spec, flat.reshape(-1, *spec.shape).clamp(0, 1), labels)


def _part(name: str, key: str, array: Array) -> Part:
    what = f"input {key!r} of {name!r}" if key else f"inputs of {name!r}"
    shape = tuple(int(n) for n in array.shape[1:])
    if array.dtype == bool or "mask" in key:
        return Part(key, shape, MASK)
    if np.issubdtype(array.dtype, np.integer):
        most = int(array.max())
        if int(array.min()) < 0 or most >= MOST_CLASSES:
            do = "number the values from 0; give quantities as floats"
            raise BadInput(what, allowed=f"whole numbers from 0 to {MOST_CLASSES - 1}", got="others", do=do)
        return Part(key, shape, CATEGORIES, most + 1)
    if not np.issubdtype(array.dtype, np.floating):
        do = "number words and categories from 0, as the model takes them"
        raise BadInput(what, allowed="numbers", got=str(array.dtype), do=do)
    if not np.isfinite(array).all():
        raise BadInput(what, allowed="finite", got="nan or inf", do="remove or fill those samples")
    low, high = _outwards(min(0.0, float(array.min()))), _outwards(max(0.0, float(array.max())))
    return Part(key, shape, NUMBERS, low=low, high=high if high > low else low + 1)


def _outwards(value: float) -> float:
    """1, 2 or 5 times a power of ten, not nearer to zero than `value`: a report names ranges and no private number.

    Of small numbers 1: that range needs no words.
    """
    if abs(value) <= 1:
        return math.copysign(1.0, value) if value else 0.0
    power = 10.0 ** math.floor(math.log10(abs(value)))
    step = next(s for s in (1, 2, 5, 10) if s * power >= abs(value) * (1 - 1e-12))
    return math.copysign(step * power, value)


def _kind(parts: tuple[Part, ...]) -> str:
    if len(parts) == 1 and parts[0].kind == NUMBERS:
        shape = parts[0].shape
        if len(shape) == 3 and shape[0] in (1, 3):
            return "image"
        return {1: "tabular", 2: "series"}.get(len(shape), "other")
    text = [p for p in parts if p.kind == CATEGORIES and len(p.shape) == 1 and p.shape[0] >= _TOKENS]
    if text and all(p.kind in (CATEGORIES, MASK) for p in parts):
        return "tokens"
    return "tabular" if all(len(p.shape) <= 1 for p in parts) else "other"


def _targets(name: str, targets: Array) -> tuple[Tensor, str, int]:
    """The targets as a loss takes them, what they are, and how many outputs they ask for."""
    what = f"labels of {name!r}"
    whole = np.issubdtype(targets.dtype, np.integer) or targets.dtype == bool
    if not whole and not np.issubdtype(targets.dtype, np.floating):
        raise BadInput(what, allowed="numbers", got=str(targets.dtype), do="convert them first")
    if not whole and not np.isfinite(targets).all():
        raise BadInput(what, allowed="finite", got="nan or inf", do="remove those samples")
    yes_or_no = bool(np.isin(targets, (0, 1)).all())
    if targets.ndim == 2 and yes_or_no and (targets.shape[1] > 1 or not whole):  # one yes or no is a float, too
        return torch.from_numpy(targets.astype(np.float32)), SEVERAL_CLASSES, targets.shape[1]
    if not whole:
        outputs = math.prod(targets.shape[1:]) if targets.ndim > 1 else 1
        return torch.from_numpy(targets.astype(np.float32)), QUANTITIES, outputs
    low, high = int(targets.min()), int(targets.max())
    if not (low >= 0 or (targets.ndim > 1 and low in (IGNORED, -1))) or high >= MOST_CLASSES:
        raise BadInput(what, allowed=f"0 to {MOST_CLASSES - 1}", got="others", do="number the classes from 0")
    kind = ONE_CLASS if targets.ndim == 1 else SEQUENCE
    return torch.from_numpy(targets.astype(np.int64)), kind, max(2, high + 1)
