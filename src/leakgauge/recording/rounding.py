"""Is what a replay leaves of an update rounding, and nothing else?

Of two kinds: of the numbers that were shared, whose precision they show themselves, and of the arithmetic behind them,
which is tried out on the client at hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from leakgauge.matching.shared_precision import shared_precision
from leakgauge.recording.replays import Client, Rows, flat
from leakgauge.types import Batch, SharedUpdate

ARITHMETIC = {"float32": 23, "tf32 or float16": 10, "bfloat16": 7}  # bits of mantissa, finest first
LEAST = 2e-5  # of a tensor's average entry: kernels of other machines add up in another order
_ROUNDING = 8.0  # an entry may be off by so many times what rounding does to its tensor on average
_ROUGHLY = 2e-3  # of a tensor's average entry
_STRAY = 0.02  # share of a tensor's entries that may be further off: a compression's threshold flips some
_APART, _SURELY = 3.0, 5  # so many times as many entries are off, and so many more, where another way is no way
_FEW = 2  # and so many entries of a small tensor


@dataclass(frozen=True)
class Match:
    """How far a replay is from what was shared, trial by trial."""

    off: Tensor  # (T,) entries that rounding does not explain
    fits: Tensor  # (T,) bool

    @property
    def all_fit(self) -> bool:
        return bool(self.fits.all())

    def is_clearly_further_than(self, other: Match) -> bool:
        """In every trial."""
        return bool((self.off > _APART * other.off + _SURELY).all())


@dataclass(frozen=True)
class Matching:
    """What was shared, beside replays of a batch (T, N)."""

    shared: SharedUpdate
    names: tuple[str, ...]
    batch: Batch
    seeds: tuple[int, ...]

    @cached_property
    def seen(self) -> Rows:
        return flat(self.shared, self.names)

    @cached_property
    def grids(self) -> Rows:
        """(T, P) how far rounding moved each number that was shared."""
        rows: dict[str, list[Tensor]] = {name: [] for name in self.seen}
        for t in range(self.shared.trials):
            precision = shared_precision([tensor[t] for tensor in self.shared.tensors.values()])
            for name, seen in self.seen.items():
                rows[name].append(0.5 * (precision.relative * seen[t].abs() + precision.spacing))
        return {name: torch.stack(each) for name, each in rows.items()}

    def explained(self, exact: Rows, client: Client, unlike: Rows | None = None) -> str | None:
        """The finest arithmetic of the client whose rounding explains what `exact` leaves; None if none does.

        None counts in which `unlike`, another way to the update, would look much the same.
        """
        for name in ARITHMETIC:
            tolerance = self.tolerance(name, exact, client)
            found = self.match(exact, tolerance)
            if found.all_fit:
                other = None if unlike is None else self.match(exact, tolerance, unlike)
                return name if other is None or other.is_clearly_further_than(found) else None
        return None

    def tolerance(self, arithmetic: str, exact: Rows, client: Client) -> Rows:
        """(T, P) how far off an entry of the client's replay may be."""
        bits = ARITHMETIC[arithmetic]
        if arithmetic == "float32":
            coarse = client.replay_single(self.batch, self.seeds)
        else:
            coarse = client.replay(self.batch, self.seeds, bits=bits)
        moved = {n: _ROUNDING * (coarse[n] - rows).pow(2).mean(1, keepdim=True).sqrt() for n, rows in exact.items()}
        return self._around(exact, client, moved)

    def roughly(self, made: Rows, client: Client) -> Rows:
        """(T, P) the same for a replay by another training, whose own rounding was not tried."""
        moved = {n: _ROUGHLY * rows.pow(2).mean(1, keepdim=True).sqrt() for n, rows in made.items()}
        return self._around(made, client, moved)

    def _around(self, exact: Rows, client: Client, moved: Rows) -> Rows:
        before = {n: p.detach().double() for n, p in client.model.named_parameters()}
        stored = shared_precision(list(client.model.parameters()))  # a difference is of weights, on their own grid
        found = {}
        for name, rows in exact.items():
            average = rows.pow(2).mean(1, keepdim=True).sqrt()
            found[name] = 1.01 * self.grids[name] + moved[name] + LEAST * average
            if self.shared.kind == "weight_delta" and before[name].numel() == rows.shape[1]:
                found[name] = found[name] + stored.relative * before[name].abs().flatten() + stored.spacing
        return found

    def match(self, made: Rows, tolerance: Rows, seen: Rows | None = None) -> Match:
        """`made` beside what was shared, or beside `seen` in its place."""
        off, fits = torch.zeros(len(self.seeds)), torch.ones(len(self.seeds), dtype=torch.bool)
        for name, rows in made.items():
            wrong = (((seen or self.seen)[name] - rows).abs() > tolerance[name]).sum(1).cpu()
            off += wrong
            fits &= wrong <= _STRAY * rows.shape[1] + _FEW
        return Match(off, fits)

    def kept_of(self, made: Rows) -> tuple[Rows, Tensor]:
        """(T, P) of a replay what was not left out of the update, at the one factor (T, 1) that fits best."""
        along = torch.stack([(self.seen[n] * rows).sum(1) for n, rows in made.items()]).sum(0)
        size = torch.stack([((self.seen[n] != 0) * rows.square()).sum(1) for n, rows in made.items()]).sum(0)
        factor = (along / size.clamp_min(1e-300))[:, None]
        return {n: torch.where(self.seen[n] != 0, factor * rows, 0) for n, rows in made.items()}, factor


def left_out_of(made: Rows, seen: Rows) -> Tensor:
    """(T,) the share of a replay's entries that are zeros in what was seen."""
    here = torch.stack([(rows != 0).sum(1) for rows in made.values()]).sum(0)
    gone = torch.stack([((rows != 0) & (seen[n] == 0)).sum(1) for n, rows in made.items()]).sum(0)
    return gone.cpu() / here.clamp_min(1).cpu()
