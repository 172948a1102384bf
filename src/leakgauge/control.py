"""Are recoveries closer to the true samples than to others? The control of every attack that claims records.

For each trial some batches of other private samples are drawn, with the same labels where there are enough, and the
recoveries are matched and compared with each of them exactly as with the true batch. If an attack read nothing but the
label, the true batch is one among these and any place in the order is as likely as any other. So the place of each true
sample among its candidates is told, and permutation p-values: how often does a batch picked at random in every trial
come out at least as close as the true ones?

Nothing is optimised again: this is a matter of distances. Closeness is PSNR, which a single exact recovery among many
failures still moves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.engine.randomness import generator
from leakgauge.metrics.assignment import assign, reorder
from leakgauge.types import Batch, Control

CANDIDATES = 39  # at most, beside each true sample: a place has one chance in forty
_ENOUGH = 5  # candidates of the same label; with fewer, labels are let go
_PERMUTATIONS = 9999
_AT_ONCE = 2**20  # picks that are in memory together
_LEVEL = 0.05
_EXACT = 1e-10  # a squared error below this is a perfect recovery: 100 dB


@dataclass(frozen=True)
class Candidates:
    """For every trial some batches of others, by their place in a pool: never all of them at once in memory."""

    pool: Tensor  # (K, *shape)
    places: Tensor  # (T, M, N)
    same_label: bool

    def batch(self, number: int) -> Tensor:
        """(T, N, *shape)."""
        return self.pool[self.places[:, number]]

    def take(self, trials: Sequence[int]) -> Candidates:
        return Candidates(self.pool, self.places[list(trials)], self.same_label)


def draw_candidates(batch: Batch, others: Batch | None, seeds: Sequence[int]) -> Candidates | None:
    """Batches of `others` (1, K, ...) for each trial, no sample twice within a trial; None if there are too few."""
    if others is None:
        return None
    labels, pool = batch.labels.cpu(), others.labels[0].cpu()
    size = labels.shape[1]
    held = torch.bincount(pool, minlength=int(labels.max()) + 1)
    wanted = torch.stack([torch.bincount(row, minlength=len(held)) for row in labels])  # (T, labels)
    fit = int(torch.where(wanted > 0, held // wanted.clamp_min(1), len(pool)).min())
    same = fit >= _ENOUGH
    count = min(CANDIDATES, fit if same else len(pool) // size)
    if count < 1:
        return None
    picks = []
    for seed, row in zip(seeds, labels, strict=True):
        order = torch.randperm(len(pool), generator=generator(seed, "control"))
        chosen = torch.empty(count, size, dtype=torch.int64)
        for label in row.unique().tolist() if same else [None]:
            places = (row == label).nonzero()[:, 0] if same else torch.arange(size)
            mine = order[pool[order] == label] if same else order
            chosen[:, places] = mine[: count * len(places)].reshape(count, -1)
        picks.append(chosen)
    return Candidates(others.inputs[0], torch.stack(picks).to(others.inputs.device), same)


def closeness(recovered: Tensor, true: Tensor, candidates: Candidates) -> Tensor:
    """PSNR of every record against the true batch (place 0) and each candidate's, matched anew: (T, 1 + M, N)."""
    mine = recovered.to(true)
    found = []
    for number in range(-1, candidates.places.shape[1]):
        rival = true if number < 0 else candidates.batch(number).to(true)
        matched = reorder(mine, assign(rival, mine))
        found.append((rival - matched).flatten(2).double().square().mean(2))
    return -10 * torch.stack(found, 1).clamp_min(_EXACT).log10()


def ranks_of(close: Tensor) -> Tensor:
    """(T, N): 1 where the true sample is nearest, ties counting half."""
    true, others = close[:, :1], close[:, 1:]
    return 1 + (others > true).sum(1) + 0.5 * (others == true).sum(1)


def judge(close: Tensor, same_label: bool) -> Control:
    """What the places of all records add up to."""
    trials, rivals, size = close.shape
    ranks = ranks_of(close).flatten()
    means, bests = close.mean(2).cpu(), close.amax(2).cpu()  # (T, 1 + M)
    permuted = [(means.take(p).mean(1), bests.take(p).amax(1)) for p in _permutations(trials, rivals)]
    p_mean = _share(torch.cat([mean for mean, _ in permuted]), means[:, 0].mean())
    p_best = _share(torch.cat([best for _, best in permuted]), bests[:, 0].amax())
    possible = rivals**trials >= 1 / _LEVEL  # else even perfect recoveries stay above the level
    return Control(
        candidates=rivals - 1, same_label=same_label, records=trials * size, first=int((ranks == 1).sum()),
        rank_median=float(ranks.median()), p_mean=p_mean, p_best=p_best,
        better=min(p_mean, p_best) <= _LEVEL if possible else None,
    )  # fmt: skip


def _permutations(trials: int, rivals: int) -> Iterator[Tensor]:
    """(P, T) places in a table (T, rivals): which batch plays the true one in each trial, some permutations at once."""
    source, rows = generator(0, "permutations"), rivals * torch.arange(trials)
    at_once = max(1, _AT_ONCE // trials)
    for begin in range(0, _PERMUTATIONS, at_once):
        count = min(at_once, _PERMUTATIONS - begin)
        yield rows + torch.randint(rivals, (count, trials), generator=source)


def _share(permuted: Tensor, observed: Tensor) -> float:
    """Of the permutations and the observation itself, those at least as close; rounding makes no difference."""
    return (1 + int((permuted >= observed - 1e-9).sum())) / (1 + len(permuted))
