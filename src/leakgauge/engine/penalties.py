"""Terms that a layer adds to the client's loss by itself, such as the divergence of a variational bottleneck.

A layer calls `add_penalty` in its forward pass. Whoever computes a client's loss runs the model inside `collecting` and
adds the penalties. Anywhere else the call does nothing, so that a look at a model leaves no trace in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from torch import Tensor

_COLLECTED: ContextVar[list[Tensor] | None] = ContextVar("penalties", default=None)


def add_penalty(value: Tensor) -> None:
    """Add a scalar, a mean over the samples at hand, to the loss that is being computed, if one is."""
    found = _COLLECTED.get()
    if found is not None:
        found.append(value)


@contextmanager
def collecting() -> Iterator[list[Tensor]]:
    """The penalties of the forward pass inside."""
    found: list[Tensor] = []
    token = _COLLECTED.set(found)
    try:
        yield found
    finally:
        _COLLECTED.reset(token)
