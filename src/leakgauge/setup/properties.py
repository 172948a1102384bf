"""Properties of private samples that have nothing to do with the task, and batches with and without them.

`class:3` is a sample of class 3, `bright` one that is brighter than half of the public samples, `patch` one with a
coloured square in its corner: no data set has that, so it is stamped on, and shows what the easiest property gives.
Own attributes (glasses, smiles ...) fit in as the classes of one's own data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.data import Dataset
from leakgauge.engine.randomness import generator
from leakgauge.errors import BadInput
from leakgauge.settings import unknown_name
from leakgauge.types import Batch, DataSpec

KNOWN = ("bright", "class:K", "patch", "patch:PIXELS")
_CHUNK = 1024  # samples whose brightness is taken at a time


@dataclass(frozen=True)
class Property:
    """Something that some samples carry and others do not."""

    text: str  # as written on the command line
    stamped: ClassVar[bool] = False  # True if no sample carries it until it is stamped on

    def carried(self, samples: Dataset) -> Tensor:
        """(M,) bool: which samples carry it by themselves."""
        return torch.zeros(len(samples), dtype=torch.bool)

    def stamp(self, inputs: Tensor) -> Tensor:
        """(k, *shape) samples that are to carry it; a new tensor if they have to be changed for that."""
        return inputs


@dataclass(frozen=True)
class OfClass(Property):
    """Samples with one label."""

    number: int

    def carried(self, samples: Dataset) -> Tensor:
        return samples.labels == self.number


@dataclass(frozen=True)
class Bright(Property):
    """Pictures whose mean is above that of half of the public ones."""

    threshold: float

    def carried(self, samples: Dataset) -> Tensor:
        return _brightness(samples) > self.threshold


@dataclass(frozen=True)
class Patch(Property):
    """A square in the corner, red in colour pictures and white in grey ones."""

    size: int  # pixels a side
    stamped: ClassVar[bool] = True

    def stamp(self, inputs: Tensor) -> Tensor:
        marked = inputs.clone()
        marked[..., : self.size, : self.size] = 0.0
        marked[:, 0, : self.size, : self.size] = 1.0
        return marked


def parse_property(text: str, public: Dataset) -> Property:
    """From `class:3`, `bright`, `patch` or `patch:6`; what is bright is learnt from the public samples."""
    kind, colon, option = text.partition(":")
    if kind == "class" and colon:
        return OfClass(text, _number(text, option, 0, public.spec.classes - 1))
    if kind not in ("bright", "patch") or (kind == "bright" and colon):
        raise unknown_name("property", text, KNOWN)
    _require_pictures(text, public.spec)
    if kind == "bright":
        return Bright(text, float(_brightness(public).median()))
    side = min(public.spec.shape[1:])
    return Patch(text, _number(text, option, 1, side) if colon else max(1, side // 4))


@dataclass(frozen=True, eq=False)
class Pool:
    """Samples that batches are drawn from, and which of them carry the property."""

    samples: Dataset
    prop: Property
    carriers: Tensor  # indices
    others: Tensor  # indices; all samples where the property is stamped on

    @classmethod
    def of(cls, samples: Dataset, prop: Property) -> Pool:
        carried = prop.carried(samples)
        others = torch.nonzero(~carried)[:, 0]
        return cls(samples, prop, others if prop.stamped else torch.nonzero(carried)[:, 0], others)

    def check(self, who: str, least_carriers: int, least_others: int) -> None:
        """Are there this many of either kind? With a stamped property every sample can be made either."""
        for kind, have, wanted in (
            ("that carry it", len(self.carriers), least_carriers),
            ("that do not", len(self.others), least_others),
        ):
            if have < wanted:
                raise BadInput(
                    f"property {self.prop.text!r}: the {who} of data {self.samples.spec.name!r}",
                    allowed=f"{wanted} or more {kind}",
                    got=have,
                    do="lower --share or --batch-size, or choose another property or other data",
                )

    def draw(self, carriers: Sequence[int], size: int, seeds: Sequence[int], role: str, repeat: bool = False) -> Batch:
        """T batches of `size` samples, of which `carriers[t]` carry the property: (T, size, *shape).

        A batch depends on its own seed alone. No sample is twice in a batch, unless there are too few and `repeat`.
        """
        batches = [self._draw_one(k, size, generator(s, role), repeat) for k, s in zip(carriers, seeds, strict=True)]
        return Batch(torch.stack([b[0] for b in batches]), torch.stack([b[1] for b in batches]))

    def _draw_one(self, carriers: int, size: int, source: torch.Generator, repeat: bool) -> tuple[Tensor, Tensor]:
        if self.prop.stamped:  # one draw, so that no sample is in the batch with and without
            chosen = _some(self.others, size, source, repeat)
        else:
            first = _some(self.carriers, carriers, source, repeat)
            chosen = torch.cat([first, _some(self.others, size - carriers, source, repeat)])
        inputs, labels = self.samples.take(chosen)
        inputs = torch.cat([self.prop.stamp(inputs[:carriers]), inputs[carriers:]])
        order = torch.randperm(size, generator=source)  # where a sample stands in its batch says nothing
        return inputs[order], labels[order]


def _some(indices: Tensor, count: int, source: torch.Generator, repeat: bool) -> Tensor:
    if repeat and count > len(indices):
        return indices[torch.randint(len(indices), (count,), generator=source)]
    return indices[torch.randperm(len(indices), generator=source)[:count]]


def _brightness(samples: Dataset) -> Tensor:
    """(M,) means over pixels and channels."""
    parts = torch.split(torch.arange(len(samples)), _CHUNK)
    return torch.cat([samples.take(part)[0].flatten(1).mean(1) for part in parts])


def _number(text: str, option: str, low: int, high: int) -> int:
    if not option.isdecimal() or not low <= int(option) <= high:
        raise BadInput(
            f"property {text!r}",
            allowed=f"followed by a whole number from {low} to {high}",
            got=repr(option),
            do=f"write {text.partition(':')[0]}:{low}",
        )
    return int(option)


def _require_pictures(text: str, data: DataSpec) -> None:
    if data.kind != "image":
        raise BadInput(
            f"property {text!r}", allowed="used with pictures", got=f"the table {data.name!r}", do="use class:K"
        )
