"""A policy: up to three operations in a row; several with slashes between them are a hybrid, one drawn per picture.

`3-1-7` shifts, changes the contrast and shifts again; `3-1-7/43-18-18` does that to about half of the pictures and the
other three to the rest. The probabilities that the published list keeps with its operations are ignored, there and
here: an operation of the policy is always applied.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.defenses.ats.operations import COUNT, OPERATIONS, Operation, cropped, shifted
from leakgauge.engine.randomness import generator
from leakgauge.errors import BadInput

LENGTH = 3  # operations at most
BORDER = 4  # pixels around a picture that the released code crops from
NOTHING = -1  # in place of an index: no operation

Triple = tuple[int, ...]
_TRIPLE = rf"\d+(-\d+){{0,{LENGTH - 1}}}"
_WRITTEN = rf"{_TRIPLE}(/{_TRIPLE})*"


@dataclass(frozen=True)
class Draw:
    """What chance decided for each picture, (M, ...): the only secret of a known policy."""

    operations: Tensor  # (M, 3) indices, or NOTHING
    signs: Tensor  # (M, 3) +1 or -1
    crop: Tensor  # (M, 3) pixels to the right, pixels down, mirrored or not; zeros unless as released

    def to(self, device: torch.device) -> Draw:
        return Draw(self.operations.to(device), self.signs.to(device), self.crop.to(device))


def parse(text: str) -> tuple[Triple, ...]:
    """`3-1-7/43-18-18` -> ((3, 1, 7), (43, 18, 18)). Refused with what is wrong."""
    if not re.fullmatch(_WRITTEN, text, re.ASCII):
        allowed = f"one to {LENGTH} numbers with dashes, such as 3-1-7, or several such with slashes"
        do = "3-1-7/43-18-18 is the published hybrid for CIFAR-100"
        raise BadInput("policy", allowed=allowed, got=repr(text), do=do)
    found = tuple(tuple(int(n) for n in part.split("-")) for part in text.split("/"))
    largest = max(n for triple in found for n in triple)
    if largest >= COUNT:
        allowed = f"made of operations 0 to {COUNT - 1}"
        raise BadInput("policy", allowed=allowed, got=f"{largest} in {text!r}", do="choose others")
    return found


def written(policies: Sequence[Triple]) -> str:
    return "/".join("-".join(str(n) for n in triple if n != NOTHING) for triple in policies)


def draw(policies: Sequence[Triple], seeds: Sequence[int], samples: int, *, as_released: bool = False) -> Draw:
    """For each of len(seeds) x samples pictures, in that order: which policy, which signs, which crop."""
    table = torch.full((len(policies), LENGTH), NOTHING)
    for row, triple in enumerate(policies):
        table[row, : len(triple)] = torch.tensor(triple)
    which, signs, crops = [], [], []
    for seed in seeds:
        random = generator(seed, "policy")
        which.append(torch.randint(len(policies), (samples,), generator=random))
        signs.append(2 * torch.randint(2, (samples, LENGTH), generator=random) - 1)
        crop = torch.randint(-BORDER, BORDER + 1, (samples, 3), generator=random)
        crop[:, 2] = torch.randint(2, (samples,), generator=random)
        crops.append(crop if as_released else torch.zeros_like(crop))
    return Draw(table[torch.cat(which)], torch.cat(signs), torch.cat(crops))


def applied(pictures: Tensor, drawn: Draw) -> Tensor:
    """(M, C, H, W) in [0, 1], each through the operations drawn for it; differentiable."""
    if drawn.crop.any():
        right, down, mirrored = drawn.crop.unbind(1)
        pictures = cropped(pictures, right.double(), down.double(), mirrored.bool())
    for place in range(LENGTH):
        pictures = _each(pictures, drawn, place, undo=False)
    return pictures


def undone(pictures: Tensor, drawn: Draw) -> Tensor:
    """The way back for someone who knows what was drawn: exact where nothing was lost on the way."""
    for place in reversed(range(LENGTH)):
        pictures = _each(pictures, drawn, place, undo=True)
    if drawn.crop.any():
        right, down, mirrored = drawn.crop.unbind(1)
        pictures = torch.where(mirrored.bool().view(-1, 1, 1, 1), pictures.flip(-1), pictures)
        pictures = shifted(pictures, -right.double(), -down.double())
    return pictures


def effect(triple: Triple) -> tuple[tuple[Operation, int | None], ...]:
    """What a policy does to every picture: two with the same effect are the same policy under other numbers.

    Operations that stand in the list under several numbers are one, and those that change nothing are none. Chance
    draws the sign of the first, second and third operation apart, so the place counts for those that have one.
    """
    done = ((place, OPERATIONS[number]) for place, number in enumerate(triple))
    return tuple((op, place if op.signed else None) for place, op in done if not op.changes_nothing)


def _each(pictures: Tensor, drawn: Draw, place: int, *, undo: bool) -> Tensor:
    """The operation at `place`, one kind after another for all pictures that have it."""
    indices, signs = drawn.operations[:, place], drawn.signs[:, place]
    kinds: dict[Operation, list[int]] = {}
    for index in sorted(set(indices.tolist())):  # equal operations under several numbers run together
        if index != NOTHING and not OPERATIONS[index].changes_nothing:
            kinds.setdefault(OPERATIONS[index], []).append(index)
    for operation, numbers in kinds.items():
        mine = torch.isin(indices, torch.tensor(numbers, device=indices.device)).nonzero().squeeze(1)
        step = operation.undone if undo else operation
        pictures = pictures.index_copy(0, mine, step(pictures[mine], signs[mine]))
    return pictures
