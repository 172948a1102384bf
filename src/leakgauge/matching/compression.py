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

_TINY = 1e-30
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


@dataclass(frozen=True)
class Signs(Compression):
    """Every entry's sign, times one number per tensor: its mean magnitude, or 1.

    The gradient lies in the orthant of the signs. Lengths are free (or fixed by the mean), so a tensor is measured in
    units of its own mean magnitude: otherwise no gradient at all would satisfy every sign.
    """

    scale: str = "none"  # or "mean"

    def against(self, observed: Named, distance: str) -> Callable[[Named], Compared]:
        signs = {name: torch.where(t < 0, -1.0, 1.0).to(t) for name, t in observed.items()}
        sizes = {name: t.flatten(1).abs().mean(1) for name, t in observed.items()}

        def compared(gradients: Named) -> Compared:
            mine, theirs = {}, {}
            for name, sign in signs.items():
                size = gradients[name].flatten(1).abs().mean(1)
                unit = gradients[name] / beside(size.clamp_min(_TINY), sign)
                inside = sign * (sign * unit).clamp_min(0)
                mine[name], theirs[name] = unit, inside
                if self.scale == "mean" and distance != "cosine":  # a cosine does not see lengths
                    # Counts as one entry more: as heavy as the tensor it holds the search off (4 dB worse).
                    mine[f"{name}/size"] = (size / sizes[name].clamp_min(_TINY))[:, None]
                    theirs[f"{name}/size"] = torch.ones_like(size)[:, None]
            return mine, theirs

        return compared


@dataclass(frozen=True)
class Cells(Compression):
    """Of every entry the least and the largest value that it may have, infinite where it has no such bound.

    Large entries most often have one bound alone, and small ones two that are close: a tensor is measured in units of
    a guess's mean magnitude here too, and beyond that by logarithm, so that small entries have their say.
    """

    bounds: Callable[[str, Tensor], tuple[Tensor, Tensor]]  # (name, what was shared) -> least, largest

    def against(self, observed: Named, distance: str) -> Callable[[Named], Compared]:  # noqa: ARG002
        cells = {name: self.bounds(name, sent) for name, sent in observed.items()}

        def compared(gradients: Named) -> Compared:
            mine, theirs = {}, {}
            for name, (least, most) in cells.items():
                gradient = gradients[name]
                unit = beside(gradient.detach().flatten(1).abs().mean(1).clamp_min(_TINY), gradient)
                mine[name], theirs[name] = (torch.asinh(g / unit) for g in (gradient, gradient.clamp(least, most)))
            return mine, theirs

        return compared


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
