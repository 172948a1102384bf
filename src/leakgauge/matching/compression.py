"""What a compressed update says about the gradient behind it, and how far a guess's gradient is from saying the same.

Compression rounds or projects in a public way. The update then fixes, of each tensor, a cell that holds the gradient or
some of its coordinates. A guess is compared only with that: the true sample costs nothing, and what the client did not
send costs nothing either. (Cells: Boufounos and Baraniuk 2008 for signs, in one-bit compressed sensing. Matching after
the client's own operation: Yue et al. 2023.)

Written as text in an attack's field `compression`: `quantize/bits=4/rounding=nearest`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.engine.factoring import is_factored
from leakgauge.engine.sketching import METHODS, there_and_back
from leakgauge.matching.distance import distance_between, rows_of
from leakgauge.settings import Settings, setting, unknown_name

NONE = "none"
_TINY = 1e-30
_FULL_RANK = 1e-5  # a singular value below this share of the largest is rounding

Named = Mapping[str, Tensor]  # name -> (A, *parameter)
# A distance of an attack's own: (observed rows, entries that count or None) -> (rows of a guess -> (A,)).
OwnDistance = Callable[[list[Tensor], list[Tensor] | None], Callable[[list[Tensor]], Tensor]]
Compared = tuple[dict[str, Tensor], dict[str, Tensor]]  # a guess's side, and what it should be


@dataclass(frozen=True)
class Compression(Settings):
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

    name: ClassVar[str] = "sign"
    summary: ClassVar[str] = "signs"

    scale: str = setting("mean", "what the signs are multiplied by", choices=("mean", "none"))

    def against(self, observed: Named, distance: str) -> Callable[[Named], Compared]:
        signs = {name: torch.where(t < 0, -1.0, 1.0).to(t) for name, t in observed.items()}
        sizes = {name: t.flatten(1).abs().mean(1) for name, t in observed.items()}

        def compared(gradients: Named) -> Compared:
            mine, theirs = {}, {}
            for name, sign in signs.items():
                size = gradients[name].flatten(1).abs().mean(1)
                unit = gradients[name] / _beside(size.clamp_min(_TINY), sign)
                inside = sign * (sign * unit).clamp_min(0)
                mine[name], theirs[name] = unit, inside
                if self.scale == "mean" and distance != "cosine":  # a cosine does not see lengths
                    # Counts as one entry more: as heavy as the tensor it holds the search off (4 dB worse).
                    mine[f"{name}/size"] = (size / sizes[name].clamp_min(_TINY))[:, None]
                    theirs[f"{name}/size"] = torch.ones_like(size)[:, None]
            return mine, theirs

        return compared


@dataclass(frozen=True)
class Levels(Compression):
    """2^bits evenly spaced levels from a tensor's least to its largest entry.

    Both ends are levels, so the grid is visible in the update. Rounded to the nearest, an entry lay within half a step
    of its level and never outside the ends: that cell is all there is to know. Random rounding says more than its cell,
    which is two steps wide: it is noise of mean zero, as large as the step. Entries are then compared in units of it
    (1 dB better than the cell at 2 bits).
    """

    name: ClassVar[str] = "quantize"
    summary: ClassVar[str] = "evenly spaced levels"

    bits: int = setting(4, "bits per entry", low=1, high=16)
    rounding: str = setting("nearest", "how an entry gets its level", choices=("nearest", "stochastic"))

    def against(self, observed: Named, distance: str) -> Callable[[Named], Compared]:  # noqa: ARG002
        if self.rounding == "stochastic":
            units = {name: torch.where((step := self._step(t)) > 0, step, 1.0) for name, t in observed.items()}
            theirs = {name: t / units[name] for name, t in observed.items()}
            return lambda gradients: ({name: gradients[name] / unit for name, unit in units.items()}, theirs)
        cells = {name: self.cell(t) for name, t in observed.items()}

        def compared(gradients: Named) -> Compared:
            mine = {name: gradients[name] for name in cells}
            return mine, {name: torch.clamp(mine[name], *cell) for name, cell in cells.items()}

        return compared

    def cell(self, tensor: Tensor) -> tuple[Tensor, Tensor]:
        """Lower and upper end of what each entry (A, *parameter) may have been before it went to the nearest level."""
        rows, reach = tensor.flatten(1), self._step(tensor) / 2
        low, high = (_beside(end, tensor) for end in (rows.amin(1), rows.amax(1)))
        return torch.maximum(tensor - reach, low), torch.minimum(tensor + reach, high)

    def _step(self, tensor: Tensor) -> Tensor:
        """Between two levels: (A, 1, ...)."""
        rows = tensor.flatten(1)
        return _beside((rows.amax(1) - rows.amin(1)) / (2**self.bits - 1), tensor)


@dataclass(frozen=True)
class LowRank(Compression):
    """The best approximation of rank r of each matrix, or its projection on r columns found by power iteration.

    A projection U U^T M tells U^T M exactly. The best approximation tells M V too, V its row space; only what
    lies outside both is unknown. A message of lower rank than r is the whole matrix.
    """

    name: ClassVar[str] = "low-rank"
    summary: ClassVar[str] = "low rank"

    rank: int = setting(2, "rank of what is sent", low=1)
    exact: bool = setting(True, "the best approximation, not one found by power iteration")

    def against(self, observed: Named, distance: str) -> Callable[[Named], Compared]:  # noqa: ARG002
        spaces = {name: self._spaces(t) for name, t in observed.items() if is_factored(t.shape[1:], self.rank)}

        def compared(gradients: Named) -> Compared:
            mine = {name: gradients[name] for name in observed}
            for name, (unseen_columns, unseen_rows) in spaces.items():
                matrix = mine[name].flatten(2)
                unknown = unseen_columns @ matrix
                unknown = unknown @ unseen_rows if self.exact else unknown
                mine[name] = (matrix - unknown).view_as(mine[name])
            return mine, dict(observed)

        return compared

    def _spaces(self, tensor: Tensor) -> tuple[Tensor, Tensor]:
        """Projections on what a message's columns and rows do not span; both zero where it is the whole matrix."""
        left, values, right = torch.linalg.svd(tensor.flatten(2), full_matrices=False)
        cut = (values[:, self.rank - 1] > _FULL_RANK * values[:, 0]).to(tensor)[:, None, None]
        columns, rows = left[..., : self.rank], right[:, : self.rank].mT
        eyes = (torch.eye(m.shape[1], dtype=tensor.dtype, device=tensor.device) for m in (columns, rows))
        outside = [cut * (eye - m @ m.mT) for eye, m in zip(eyes, (columns, rows), strict=True)]
        return outside[0], outside[1]


@dataclass(frozen=True)
class Sketched(Compression):
    """A public linear map of each tensor: the same map is applied to the guess's gradient."""

    name: ClassVar[str] = "sketch"
    summary: ClassVar[str] = "a sketch"

    size: float = setting(0.25, "length of the sketch as a share of the tensor's", above=0, high=1)
    method: str = setting("rotation", "which map", choices=METHODS)
    seed: int = setting(0, "public number that the map is drawn from", low=0)

    def against(self, observed: Named, distance: str) -> Callable[[Named], Compared]:  # noqa: ARG002
        maps = {
            name: there_and_back(t[0].numel(), self.size, self.method, self.seed, name, t)
            for name, t in observed.items()
        }
        theirs = {name: self.size * t for name, t in observed.items()}  # an unbiased estimate is 1/size times too long

        def compared(gradients: Named) -> Compared:
            seen = {name: m(gradients[name].flatten(1)).view_as(gradients[name]) for name, m in maps.items()}
            return {name: self.size * t for name, t in seen.items()}, theirs

        return compared


KINDS: dict[str, type[Compression]] = {kind.name: kind for kind in (Levels, LowRank, Signs, Sketched)}


def compression_setting() -> str:
    """The field of an attack that can be told."""
    told: str = setting(
        NONE, "how the client shortens what it sends, as in quantize/bits=4; compare only what that says"
    )
    return told


def compression_of(text: str) -> Compression | None:
    """`name/field=value/...` -> how the client compressed; None for "none"."""
    if text == NONE:
        return None
    name, _, fields = text.partition("/")
    if name not in KINDS:
        raise unknown_name("compression", name, (NONE, *KINDS))
    return KINDS[name].from_text(fields.replace("/", ","))


def compressed_distance(
    compression: Compression, observed: Named, distance: str | OwnDistance, known: Named | None = None
) -> Callable[[Named], Tensor]:
    """(gradients of a guess) -> (A,): the distance to the nearest gradient that would have been sent like this."""
    compare = compression.against(observed, distance if isinstance(distance, str) else "l2")

    def measured(gradients: Named) -> Tensor:
        mine, theirs = compare(gradients)
        masks = None if known is None else {n: known.get(n, torch.ones_like(t)) for n, t in theirs.items()}
        form = distance if isinstance(distance, str) else None
        counting = None if masks is None else rows_of(masks, theirs, form)
        if isinstance(distance, str):
            rows = rows_of(mine, theirs, distance), rows_of(theirs, theirs, distance)
            return distance_between(*rows, distance, counting)
        # The nearest gradient moves only where it is the guess itself, so it may be taken as fixed.
        return distance([row.detach() for row in rows_of(theirs, theirs)], counting)(rows_of(mine, theirs))

    return measured


def _beside(per_row: Tensor, like: Tensor) -> Tensor:
    """(A,) -> (A, 1, ...), to be combined with (A, *parameter)."""
    return per_row.view(-1, *[1] * (like.dim() - 1))
