"""How precise the numbers of an update are: read off the numbers themselves.

A client may train in float32 and share float16 or bfloat16. A receiver of float32 tensors does not see that in their
type, but every number then is one that the coarser type can hold.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

_COARSE = (torch.bfloat16, torch.float16)  # in this order: numbers of both have the fewer digits
_FINE = 1e-5
_ENOUGH = 32  # numbers that are not zero; a handful may be round by chance


@dataclass(frozen=True)
class Precision:
    """A number v is off by half of `relative` times |v| at most, or by half of `spacing`, whichever is larger."""

    relative: float
    spacing: float  # of the numbers around zero

    @property
    def is_coarse(self) -> bool:
        """Did the numbers pass through 16 bits?"""
        return self.relative > _FINE


def shared_precision(tensors: Iterable[Tensor]) -> Precision:
    """The coarsest type that holds all numbers as they are; their own if there are too few to say."""
    every = list(tensors)
    own = max((t.dtype for t in every), key=lambda dtype: torch.finfo(dtype).eps)
    fits = (dtype for dtype in _COARSE if all(bool((t.to(dtype).to(t.dtype) == t).all()) for t in every))
    enough = sum(int(t.count_nonzero()) for t in every) >= _ENOUGH
    about = torch.finfo(next(fits, own) if enough else own)
    return Precision(about.eps, about.smallest_normal * about.eps)
