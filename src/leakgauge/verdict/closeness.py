"""Are recoveries closer to the true samples than to others? The control of every attack that claims records.

For each trial some batches of other private samples are drawn, with the same labels where there are enough, and the
recoveries are matched and compared with each of them exactly as with the true batch. If an attack read nothing but the
label, the true batch is one among these and any place in the order is as likely as any other. So each true sample gets
its rank among its candidates, and permutation p-values say how often a batch picked at random in every trial comes out
at least as close as the true ones.

Nothing is optimised again: only distances are computed. Closeness is PSNR, which a single exact recovery among many
failures still moves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from scipy.stats import binom
from torch import Tensor

from leakgauge.engine.randomness import generator
from leakgauge.metrics.assignment import assign, pairwise_mse, reorder
from leakgauge.types import Batch, Control

CANDIDATES = 39  # beside each true sample: a place has one chance in forty
_MORE = 1999  # at most, where few records are attacked and only a place among many says something
_ENOUGH = 5  # candidates of the same label; with fewer, labels are ignored
_PERMUTATIONS = 9999
_AT_ONCE = 2**20  # picks that are in memory together
_LEVEL = 0.05  # p-value from which recoveries are called better than chance
_CONVINCING = 1e-3  # p-value from which they are evidence of a leak: once in a thousand runs by chance
_NUMBERS = 2**23  # values of rivals that are in memory together
_EXACT = 1e-10  # a squared error below this is a perfect recovery: 100 dB


@dataclass(frozen=True)
class Candidates:
    """For every trial some batches of other samples, by their place in a pool: never all of them in memory at once."""

    pool: Tensor  # (K, *shape)
    places: Tensor  # (T, M, N)
    same_label: bool

    def take(self, trials: Sequence[int]) -> Candidates:
        return Candidates(self.pool, self.places[list(trials)], self.same_label)


def draw_candidates(batch: Batch, others: Batch | None, seeds: Sequence[int]) -> Candidates | None:
    """Batches of `others` (1, K, ...) for each trial, no sample twice within a trial; None if there are too few."""
    if others is None:
        return None
    labels, pool = batch.classes.cpu(), others.classes[0].cpu()
    size = labels.shape[1]
    held = torch.bincount(pool, minlength=int(labels.max()) + 1)
    wanted = torch.stack([torch.bincount(row, minlength=len(held)) for row in labels])  # (T, labels)
    fit = int(torch.where(wanted > 0, held // wanted.clamp_min(1), len(pool)).min())
    same = fit >= _ENOUGH
    convincing = math.ceil(math.exp(-math.log(_CONVINCING) / labels.numel())) - 1  # if all are nearest to their own
    count = min(_MORE, max(CANDIDATES, convincing), fit if same else len(pool) // size)
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


@dataclass(frozen=True)
class Closeness:
    """PSNR of the true records (place 0 of M + 1) and of each candidate batch's: (T, 1 + M, N) both."""

    matched: Tensor  # to the claim that it is matched with, each claim given once
    nearest: Tensor  # to the nearest of all claims of the trial: no record takes a claim from another
    claimed: Tensor  # (T, N) true records that a claim was matched with


def closeness(recovered: Tensor, true: Tensor, candidates: Candidates, claimed: Tensor | None = None) -> Closeness:
    """What was recovered (T, N, *shape), of which only `claimed` (T, N) counts, against the truth and its rivals.

    A record without a claim and its rivals stand at 0 dB: it says nothing either way.
    """
    mine = recovered.to(true)
    said = torch.ones(mine.shape[:2], dtype=torch.bool, device=mine.device) if claimed is None else claimed
    rivals = candidates.places.shape[1]
    some = max(1, _NUMBERS // max(1, mine.numel()))
    parts = [_errors(mine, true[:, None], said)]
    for begin in range(0, rivals, some):
        parts.append(_errors(mine, candidates.pool[candidates.places[:, begin : begin + some]].to(true), said))
    matched, nearest = (-10 * torch.cat([part[kind] for part in parts], 1).clamp_min(_EXACT).log10() for kind in (0, 1))
    return Closeness(matched, nearest, parts[0][2][:, 0])


def nearest_of(answers: Sequence[Closeness]) -> Closeness:
    """Of several answers the closest counts, for the true records as for their rivals."""
    matched, nearest, claimed = (torch.stack(part) for part in zip(*(vars(a).values() for a in answers), strict=True))
    return Closeness(matched.amax(0), nearest.amax(0), claimed.any(0))


def _errors(mine: Tensor, rivals: Tensor, said: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Against R batches (T, R, N, *shape): errors of matched claims, errors to the nearest, records with a claim."""
    trials, count, size = rivals.shape[:3]
    rows = torch.arange(trials, device=mine.device).repeat_interleave(count)
    true, claims, given = rivals.flatten(0, 1), mine[rows], said[rows]
    order = assign(true, claims, given)
    took = reorder(given, order)
    matched = (true - reorder(claims, order)).flatten(2).double().square().mean(2).where(took, 1.0)
    nearest = matched if size == 1 else pairwise_mse(true, claims).where(given[:, None], 1.0).amin(2)
    return matched.reshape(trials, count, size), nearest.reshape(trials, count, size), took.reshape(trials, count, size)


def ranks_of(close: Tensor) -> Tensor:
    """(T, 1 + M, N) -> (T, N): 1 where the true sample is nearest, ties counting half."""
    true, others = close[:, :1], close[:, 1:]
    return 1 + (others > true).sum(1) + 0.5 * (others == true).sum(1)


def judge(close: Closeness, same_label: bool) -> Control:
    """What the ranks of all records add up to.

    `p_first` counts the records that are nearer to a claim than all their rivals. Records do not compete for claims
    there, so by chance each is first once in 1 + M, whatever the others are: a binomial tail.
    """
    trials, rivals, size = close.matched.shape
    claimed = close.claimed.flatten()
    ranks = ranks_of(close.matched).flatten()[claimed]
    lone = (close.nearest[:, :1] > close.nearest[:, 1:]).all(1).flatten()[claimed]  # (claimed records,)
    first, records = int(lone.sum()), len(lone)
    p_first = float(binom.sf(first - 1, records, 1 / rivals)) if records else 1.0
    means, bests = close.matched.mean(2).cpu(), close.matched.amax(2).cpu()  # (T, 1 + M)
    permuted = [(means.take(p).mean(1), bests.take(p).amax(1)) for p in _permutations(trials, rivals)]
    all_means, all_bests = (torch.cat(values) for values in zip(*permuted, strict=True))
    p_mean, p_best = _share(all_means, means[:, 0].mean()), _share(all_bests, bests[:, 0].amax())
    chances = records * math.log(rivals)  # else even perfect recoveries stay above the level
    best = min(p_mean, p_best, p_first)
    return Control(
        candidates=rivals - 1,
        same_label=same_label,
        records=trials * size,
        first=first,
        rank_median=float(ranks.median()) if records else (rivals + 1) / 2,
        p_mean=p_mean,
        p_best=p_best,
        p_first=p_first,
        better=best <= _LEVEL if chances >= -math.log(_LEVEL) else None,
        convincing=best <= _CONVINCING if chances >= -math.log(_CONVINCING) else None,
    )


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
