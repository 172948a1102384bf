"""How far a trial's gradient g' is from the observed g, over all tensors and entries r = g' - g.

l2           sum r^2                       what DLG minimises; the likelihood under Gaussian noise
l1           sum sqrt(r^2 + e^2) - e       the likelihood under Laplace noise, its corner rounded
relative-l1  the same over sum |g|, e in units of the mean |g|: small entries count as they do not in a square
cosine       1 - cosine(g', g)             blind to scale (Inverting Gradients)
entropy      sum p log(p / q)              Kullback-Leibler divergence of g and g' as shares of their sum, p and q

For the entropy every entry is two shares, of its positive and of its negative part, with corners rounded as for
relative-l1, both behind each other: 0 where g' is g, and blind to scale.

For updates that were clipped, whose scale says nothing; c is the cosine, and c |c| is c^2 ahead and -c^2 behind:

scaled       |g|^2 (1 - c |c|)        what is left of g after the best scale of g', by least squares
scaled-each  the same, summed over tensors that have a scale each
cosine-each  1 - c of each tensor, weighted by its |g|^2
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

import torch
from torch import Tensor

EACH = ("scaled-each", "cosine-each")  # distances for which every tensor must be a row of its own
_CORNER = 1e-4  # e of the rounded l1
_RELATIVE_CORNER = 1e-3  # the same in units of the mean magnitude
_TINY = 1e-30
_SHARE_CORNER = 1e-2  # e of the entropy's parts in units of the mean magnitude
_LEAST_CORNER = 1e-15  # for an update of zeros, whose shares are all equal


def rows_of(tensors: Mapping[str, Tensor], names: Iterable[str], distance: str | None = None) -> list[Tensor]:
    """The named tensors of each trial as rows (T, p).

    On a GPU all of them as one, so that few launches do; on a CPU each for itself, because large temporaries are slow,
    and wherever the distance looks at each.
    """
    rows = [tensors[name].flatten(1) for name in names]
    return [torch.cat(rows, 1)] if rows[0].is_cuda and distance not in EACH else rows


def distance_between(
    mine: Sequence[Tensor], observed: Sequence[Tensor], distance: str, known: Sequence[Tensor] | None = None
) -> Tensor:
    """Distance per trial (T,) between two lists of rows; entries where `known` is False are left out."""
    counting = observed
    if known is not None:
        mine, counting = ([r * mask for r, mask in zip(rows, known, strict=True)] for rows in (mine, observed))
    pairs = list(zip(mine, observed, strict=True))
    if distance == "scaled" or distance in EACH:
        return _after_scaling(pairs, distance)
    if distance == "cosine":
        inner = _total((a * b).sum(1) for a, b in pairs)
        own = _total((a * a).sum(1) for a, _ in pairs)
        other = _total((b * b).sum(1) for _, b in pairs)
        return 1 - inner / (own * other).clamp_min(_TINY).sqrt()
    if distance == "entropy":
        return _divergence(mine, counting)
    residuals = (a - b for a, b in zip(mine, counting, strict=True))
    if distance == "l2":
        return _total((r * r).sum(1) for r in residuals)
    if distance == "relative-l1":
        size = _total(b.abs().sum(1) for b in observed).clamp_min(_TINY)  # (T,)
        corner = (_RELATIVE_CORNER / sum(b.shape[1] for b in observed) * size)[:, None]
        return _total(((r * r + corner**2).sqrt() - corner).sum(1) for r in residuals) / size
    return _total(((r * r + _CORNER**2).sqrt() - _CORNER).sum(1) for r in residuals)


def gradient_distance(
    gradients: Mapping[str, Tensor],
    observed: Mapping[str, Tensor],
    distance: str = "l2",
    known: Mapping[str, Tensor] | None = None,
) -> Tensor:
    """Distance per trial (T,) over all tensors that were observed."""
    names = list(observed)
    masks = None if known is None else rows_of(known, names, distance)
    mine, theirs = (rows_of(tensors, names, distance) for tensors in (gradients, observed))
    return distance_between(mine, theirs, distance, masks)


def _divergence(mine: Sequence[Tensor], observed: Sequence[Tensor]) -> Tensor:
    """Kullback-Leibler divergence (T,) of what was observed from a guess, both as shares over all entries and signs.

    As sums of p (d - log(1 + d)) with d = q / p - 1: the differences of logarithms lose all digits near the solution.
    """
    ratios = ((p, q / p - 1) for p, q in zip(_shares(observed), _shares(mine), strict=True))
    return _total((p * (d - torch.log1p(d))).sum(1) for p, d in ratios)


def _shares(rows: Sequence[Tensor]) -> list[Tensor]:
    """Rows (T, p) -> their rounded positive and negative parts (T, 2p), all of them together adding up to 1."""
    entries = sum(row.shape[1] for row in rows)
    corner = (_SHARE_CORNER / entries * _total(row.abs().sum(1) for row in rows)).clamp_min(_LEAST_CORNER)[:, None]
    parts = []
    for row in rows:
        twice = (row * row + corner**2).sqrt() + row.abs()
        large, small = twice / 2, corner**2 / (2 * twice)
        parts.append(torch.cat((torch.where(row > 0, large, small), torch.where(row > 0, small, large)), 1))
    whole = _total(part.sum(1) for part in parts)[:, None]
    return [part / whole for part in parts]


def _after_scaling(pairs: Sequence[tuple[Tensor, Tensor]], distance: str) -> Tensor:
    inner = torch.stack([(a * b).sum(1) for a, b in pairs])  # (rows, T)
    own = torch.stack([(a * a).sum(1) for a, _ in pairs])
    length = torch.stack([(b * b).sum(1) for _, b in pairs])
    if distance == "scaled":
        inner, own, length = (t.sum(0, keepdim=True) for t in (inner, own, length))
    # As sums of squares of what is left: 1 - c would lose all digits near the solution.
    if distance == "cosine-each":
        mine, theirs = (t.clamp_min(_TINY).rsqrt()[..., None] for t in (own, length))
        gaps = [(a * m - b * o).square().sum(1) for (a, b), m, o in zip(pairs, mine, theirs, strict=True)]
        return (length * torch.stack(gaps)).sum(0) / (2 * length.sum(0).clamp_min(_TINY))
    scale = inner / own.clamp_min(_TINY)
    scales = scale.expand(len(pairs), -1)[..., None]
    left = torch.stack([(b - s * a).square().sum(1) for (a, b), s in zip(pairs, scales, strict=True)])
    ahead = left.sum(0, keepdim=True) if distance == "scaled" else left
    return torch.where(inner > 0, ahead, length - inner * scale.abs()).sum(0)


def _total(parts: Iterable[Tensor]) -> Tensor:
    return reduce(torch.add, parts)
