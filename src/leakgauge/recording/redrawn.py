"""Could a client have drawn this update? Its replays, with everything drawn anew, beside what was shared.

The order of mini-batches, dropout and a defense's noise are drawn. What was shared has to lie as far from the middle of
the replays as they do themselves, and nearer to them than to replays of other batches. Everything is measured in units
of what the draws and rounding move in each tensor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from leakgauge.engine.randomness import derived_seed, generator
from leakgauge.recording.replays import ReplayedClient
from leakgauge.types import Batch

_DRAWS, _FEWEST_DRAWS = 32, 12
_OTHERS_DRAWS, _FEWEST_OTHERS_DRAWS = 2, 1  # of each other batch, drawn as the batch's first ones
_SPREAD, _SLACK = 4.0, 0.15  # of a logarithm: standard deviations and a margin, within which a size fits the draws
_SURELY = 5.0  # times what the replays go themselves, on average: as far as the batch's own update may go
_NEAR = 0.7  # of that, from which an update is not sure to be the batch's either
_BEYOND = 1.2  # times that, for another batch to count as seen
_RIDGE = 1e-9  # of the replays' average square
_NEVER = 0.02  # of the way to another batch that is never held against an update
_PATIENCE = 60.0  # seconds that drawing anew may take, by the time of the first replay
_PLACES = 2**28  # numbers in all replays of one client
_MANY = 100  # numbers in a tensor from which its own size is judged too
_TINY = 1e-30
HIDDEN = "what is drawn hides it, as other batches fit as well"
FARTHER = "other batches with these labels fit as well as this one"


@dataclass
class Redrawn:
    """One client's update, and what its batch (1, N) gives when all that is drawn is drawn anew."""

    client: ReplayedClient
    batch: Batch
    seed: int
    shared: Mapping[str, Tensor]  # parameter name -> (P,)
    rounding: Mapping[str, float]  # of an entry, on average
    others: Sequence[Batch]  # (1, N) each, with the same labels, that it must be told apart from
    probes: Sequence[Batch]  # and more: what differs between batches shows along the way to them
    seconds: float  # that one replay takes
    order: bool  # is the order of mini-batches drawn?
    drops: bool  # is dropout at work?

    def __post_init__(self) -> None:
        numbers = sum(len(row) for row in self.shared.values())
        affordable = min(_PATIENCE / max(self.seconds, 1e-6), _PLACES / numbers)
        every = affordable >= _DRAWS + _OTHERS_DRAWS * (len(self.others) + len(self.probes))
        # How many replays of the batch, and of each other one.
        self._count, self._few = (_DRAWS, _OTHERS_DRAWS) if every else (_FEWEST_DRAWS, _FEWEST_OTHERS_DRAWS)
        self._replays = self._drawn(self.batch, self._count)
        self._middles = {name: rows.mean(0) for name, rows in self._replays.items()}
        spread = {name: (rows - self._middles[name]).pow(2).mean() for name, rows in self._replays.items()}
        # What the draws and rounding move in an entry, on average.
        self._units = {n: (s + self.rounding[n] ** 2).sqrt().clamp_min(_TINY) for n, s in spread.items()}

    def too_near_or_far(self) -> tuple[bool, bool]:
        """Is the update nearer to the middle of the replays than they are themselves? Is it farther?"""
        k = self._count
        near = far = False
        updates, replays = [], []
        for name, rows in self._replays.items():
            unit, middle = self._units[name], self._middles[name]
            # each replay beside the mean of the others, which is k / (k - 1) times as far as beside the mean of all
            own = ((rows - middle) / unit).pow(2).mean(1).cpu() * (k / (k - 1)) ** 2 + 1e-12
            seen = ((self.shared[name] - middle) / unit).pow(2).mean().cpu() * k / (k - 1) * (k / (k + 1)) + 1e-12
            updates.append(seen.log())
            replays.append(own.log())
            if rows.shape[1] >= _MANY:
                distance, reach = _distance_and_reach(updates[-1], replays[-1])
                near, far = near or distance < -reach, far or distance > 2 * reach
        distance, reach = _distance_and_reach(torch.stack(updates).mean(), torch.stack(replays).mean(0))
        return near or distance < -reach, far or distance > reach

    def no_nearer(self) -> str | None:
        """Why the batch is not clearly nearer to the update than other batches are; None if it is.

        From the middle of the batch's replays a way leads to those of each other batch, drawn alike. How much of it has
        the update gone, where the draws scatter least? If it is the batch's own, none, but for the draws; if it is
        another's, about half. Whether that can be seen at all is tried on the other batches themselves.
        """
        k, others = self._count, len(self.others)
        products = self._products()
        ways, update = range(k, len(products) - 1), len(products) - 1
        seen, each = _Outside(products, k), [_Outside(products, k, left) for left in range(k)]
        limits = {}
        for way in ways:
            gone = torch.tensor([judge.gone(left, way) for left, judge in enumerate(each)])
            limits[way] = max(_SURELY * float(gone.square().mean().sqrt()), _NEVER)
        furthest = max(abs(seen.gone(update, way)) / limits[way] for way in ways)
        if furthest > 1:
            return FARTHER
        if furthest > _NEAR:
            return HIDDEN
        for hidden in ways[:others]:
            if not any(abs(seen.gone(hidden, way)) > _BEYOND * limits[way] for way in ways if way != hidden):
                return HIDDEN
        return None

    def _products(self) -> Tensor:
        """Inner products of the batch's replays, the ways to other batches, and the update, in this order.

        All are taken from the middle of the replays, and every tensor in its own unit.
        """
        few = self._few
        theirs = [self._drawn(batch, few) for batch in (*self.others, *self.probes)]
        plain = replace(self.client, defenses=()).replay(self.batch, [self.seed])  # longer, or shorter
        fits = all(name in plain and plain[name].shape[1] == len(row) for name, row in self.shared.items())
        total = None
        for name, rows in self._replays.items():
            middle, unit = self._middles[name], self._units[name]
            vectors = [rows - middle, *((other[name] - rows[:few]).mean(0, keepdim=True) for other in theirs)]
            vectors += [plain[name]] if fits else []
            vectors.append((self.shared[name] - middle)[None])
            stacked = torch.cat(vectors) / unit
            total = stacked @ stacked.T if total is None else total + stacked @ stacked.T
        assert total is not None
        return total.cpu()

    def _drawn(self, batch: Batch, count: int) -> Mapping[str, Tensor]:
        """(count, P), with the same draws for every batch. Half of the orders last for all epochs, half for one."""
        seeds = [derived_seed(self.seed, f"replay/{k}") for k in range(count)]
        many = Batch(batch.inputs.repeat_interleave(count, 0), batch.labels.repeat_interleave(count, 0))
        if self.order:
            many = _shuffled(many, seeds)
        if not self.order or self.client.local.epochs == 1:
            return self.client.replay(many, seeds, drops=self.drops)
        last, anew = range(0, count, 2), range(1, count, 2)
        parts = [
            self.client.replay(many.take(list(rows)), [seeds[r] for r in rows], drops=self.drops, shuffled=rows is anew)
            for rows in (last, anew)
            if rows
        ]
        place = torch.tensor([*last, *anew]).argsort()
        return {
            name: torch.cat([part[name] for part in parts])[place.to(part.device)] for name, part in parts[0].items()
        }


@dataclass(frozen=True)
class _Outside:
    """Vectors by their inner products, seen from outside of what the replays span: there the draws scatter least."""

    products: Tensor  # (V, V): of the replays from their middle, then of everything else
    replays: int
    left: int | None = None  # a replay that is judged like the update, by the others alone

    @cached_property
    def _seen(self) -> Tensor:
        """(V, V) with what the replays span taken away."""
        k, total = self.replays, self.products
        span = torch.eye(k, len(total), dtype=total.dtype)
        if self.left is not None:  # the others lie about a middle of their own
            span[:, self.left] += 1 / (k - 1)
            span = span[[r for r in range(k) if r != self.left]]
        along = span @ total
        own = along @ span.T
        own += _RIDGE * own.diagonal().mean().clamp_min(_TINY) * torch.eye(len(own), dtype=own.dtype)
        seen: Tensor = total - along.T @ torch.linalg.solve(own, along)
        return seen

    def gone(self, point: int, way: int) -> float:
        """How much of a way a point has gone."""
        length = self._seen[way, way].clamp_min(1e-6 * self.products[way, way] + _TINY)
        share = float(self._seen[point, way] / length)
        return share if self.left is None else share * self.replays / (self.replays - 1)


def _shuffled(batch: Batch, seeds: Sequence[int]) -> Batch:
    """The samples of each row in an order of its own."""
    size = batch.labels.shape[1]
    order = torch.stack([torch.randperm(size, generator=generator(seed, "order")) for seed in seeds])
    order = order.to(batch.labels.device)
    row = torch.arange(len(order), device=order.device)[:, None]
    return Batch(batch.inputs[row, order], batch.labels[row, order])


def _distance_and_reach(update: Tensor, replays: Tensor) -> tuple[float, float]:
    """Of logarithms: how far the update is from the replays' mean, and how far they go themselves."""
    return float(update - replays.mean()), _SPREAD * float(replays.std()) + _SLACK
