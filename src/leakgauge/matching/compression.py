"""What a compressed update says about the gradient behind it, and how far a guess's gradient is from saying the same.

Compression rounds or projects in a public way. The update then fixes, of each tensor, a cell that holds the gradient or
some of its coordinates. A guess is compared only with that: the true sample costs nothing, and what the client did not
send costs nothing either. (Cells: Boufounos and Baraniuk 2008 for signs, in one-bit compressed sensing. Matching after
the client's own operation: Yue et al. 2023.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.matching.distance import distance_between, rows_of

Named = Mapping[str, Tensor]  # name -> (A, *parameter)
# A distance of an attack's own: (observed rows, entries that count or None) -> (rows of a guess -> (A,)).
OwnDistance = Callable[[list[Tensor], list[Tensor] | None], Callable[[list[Tensor]], Tensor]]
Compared = tuple[dict[str, Tensor], dict[str, Tensor]]  # a guess's side, and what it should be


@dataclass(frozen=True)
class Compression:
    """A public way to shorten an update."""

    def against(self, observed: Named, distance: str) -> Callable[[Named], Compared]:
        """For rows with these updates: (gradients of a guess) -> what is compared with what."""
        raise NotImplementedError  # abstract


def compressed_distance(
    compression: Compression, observed: Named, distance: str | OwnDistance, known: Named | None = None
) -> Callable[[Named], Tensor]:
    """(gradients of a guess) -> (A,): the distance to the nearest gradient that would have been sent like this."""
    form = distance if isinstance(distance, str) else None
    compare = compression.against(observed, form or "l2")

    def measured(gradients: Named) -> Tensor:
        mine, theirs = compare(gradients)
        masks = None if known is None else {n: known.get(n, torch.ones_like(t)) for n, t in theirs.items()}
        counting = None if masks is None else rows_of(masks, theirs, form)
        rows, goals = rows_of(mine, theirs, form), rows_of(theirs, theirs, form)
        if isinstance(distance, str):
            return distance_between(rows, goals, distance, counting)
        # The nearest gradient moves only where it is the guess itself, so it may be taken as fixed.
        return distance([row.detach() for row in goals], counting)(rows)

    return measured


def beside(per_row: Tensor, like: Tensor) -> Tensor:
    """(A,) -> (A, 1, ...), to be combined with (A, *parameter)."""
    return per_row.view(-1, *[1] * (like.dim() - 1))
