"""From what the copies held behind pooling back to a picture.

Every value speaks of one square region of pixels: its maximum, one minus its minimum, or (nearly) its mean.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from leakgauge.servers._mkor.convolutions import Copies

_NEVER_QUITE = 3e-8  # how near to 0 and 1 a squashed value may lie: the published clamp


def pictures(features: Tensor, copies: Copies, blur: int, unseen: Tensor | float | None = None) -> Tensor:
    """(M, *plan.features) -> (M, C, H, W): the middle of the bounds, smoothed, or the pixels themselves.

    `unseen`, a value or a picture (C, H, W), stands where no feature speaks of a pixel; their neighbours if not given.
    """
    features = unscaled(features, copies)
    if copies.kind == "plain":  # the features are the pixels, or what the network's normalisation made of them
        if copies.places:
            return _used(features, copies)
        shape = (1, -1, *[1] * (features.dim() - 2))
        mean, std = (features.new_tensor(values).view(shape) for values in (copies.plan.mean, copies.plan.std))
        return features * std + mean
    if copies.kind != "max":
        return _from_points(features, copies, unseen)
    lower, upper = bounds(features, copies)
    middle = ((lower + upper) / 2).clamp(0, 1)
    if blur <= 1:
        return middle
    # A mean over blur x blur pixels: the published blur, whose Gaussian is far wider than its window.
    before, behind = blur // 2, blur - 1 - blur // 2
    return F.avg_pool2d(F.pad(middle, (before, behind, before, behind), mode="replicate"), blur, 1)


def unscaled(features: Tensor, copies: Copies) -> Tensor:
    """(M, C, ...) with the channels in use as they were in the picture: sigmoids, factor and offsets undone."""
    if not copies.places:
        return features
    own = _used(features, copies)
    for i, layer in reversed(list(enumerate(copies.plan.convolutions))):
        if layer.squashed:
            own = own.clamp(_NEVER_QUITE, 1 - _NEVER_QUITE).logit()
        scale = 1.0 if layer.norm else copies.gain  # BatchNorm has undone the factor
        if copies.offsets:
            added = copies.offsets[i].to(own) * scale / copies.gain
            own = own - added.repeat(own.shape[1] // len(added)).view(-1, *[1] * (own.dim() - 2))
        own = own / scale
    return features.index_copy(1, copies.places[-1].to(features.device), own)


def _used(features: Tensor, copies: Copies) -> Tensor:
    """The channels in use of the last convolution, in order."""
    return features[:, copies.places[-1].to(features.device)]


def bounds(features: Tensor, copies: Copies) -> tuple[Tensor, Tensor]:
    """What each pixel cannot be below and above: (M, C, H, W) twice, of unscaled features.

    Inputs in [0, 1] lie between them if nothing but copies reaches the channels in use.
    """
    extent, _, moves = copies.geometry()
    unit = min(moves, default=extent)
    height, width = (-(-side // unit) for side in copies.plan.size)  # in units
    upper = features.new_ones(len(features), copies.colours, height, width)
    lower = torch.zeros_like(upper)
    for down, right, values in _by_direction(features, copies, moves):
        high, low = values[:, : copies.colours], 1 - values[:, copies.colours :]
        for known, new, keep in ((upper, high, torch.minimum), (lower, low, torch.maximum)):
            part = known[:, :, down // unit :, right // unit :]  # from where region 0 of this direction begins
            spread = _spread(new, extent // unit)[:, :, : part.shape[2], : part.shape[3]]  # (M, C, rows, columns)
            part = part[:, :, : spread.shape[2], : spread.shape[3]]
            part.copy_(keep(part, spread))
    rows, columns = (slice(side) for side in copies.plan.size)
    return _spread(lower, unit)[:, :, rows, columns], _spread(upper, unit)[:, :, rows, columns]


def _by_direction(features: Tensor, copies: Copies, moves: list[int]) -> Iterator[tuple[int, int, Tensor]]:
    """(pixels down, pixels right, channels (M, base, h, w)) for each way through the layers that shift."""
    ways = itertools.product(range(4), repeat=len(moves))  # a direction for each layer; the first layer's goes fastest
    for way, channels in zip(ways, _used(features, copies).chunk(4 ** len(moves), 1), strict=True):
        steps = list(zip(moves, reversed(way), strict=True))
        yield sum(move * (d // 2) for move, d in steps), sum(move * (d % 2) for move, d in steps), channels


def _from_points(features: Tensor, copies: Copies, unseen: Tensor | float | None) -> Tensor:
    """Each value stands for one pixel: the middle of the region that it is the mean of, or the one that was copied."""
    extent, begin, moves = copies.geometry()
    middle = begin + (extent // 2 if copies.kind == "average" else 0)
    height, width = copies.plan.size
    picture = features.new_full((len(features), copies.colours, height, width), torch.nan)
    for down, right, channels in _by_direction(features, copies, moves):
        rows = torch.arange(channels.shape[2], device=features.device) * extent + middle + down
        columns = torch.arange(channels.shape[3], device=features.device) * extent + middle + right
        inside_rows, inside_columns = (rows >= 0) & (rows < height), (columns >= 0) & (columns < width)
        kept = channels[:, :, inside_rows][:, :, :, inside_columns]
        picture[:, :, rows[inside_rows][:, None], columns[inside_columns][None]] = kept
    known = ~picture[0, 0].isnan()
    gap = extent // 2 ** len(moves)  # pixels from one that is known to the next
    (rows, seen_rows), (columns, seen_columns) = _nearest(known.any(1), gap), _nearest(known.any(0), gap)
    found = picture[:, :, rows][:, :, :, columns]
    if unseen is None:
        return found
    other = torch.as_tensor(unseen, dtype=picture.dtype, device=picture.device)
    return torch.where(seen_rows[:, None] & seen_columns, found, other)


def _nearest(known: Tensor, gap: int) -> tuple[Tensor, Tensor]:
    """For each row or column the nearest known one; whether it lies from the first to what the last stands for."""
    places = torch.arange(len(known), device=known.device)
    found = places[known]
    nearest = found[(places[:, None] - found[None]).abs().argmin(1)]
    return nearest, (places >= found[0]) & (places < found[-1] + gap)


def _spread(values: Tensor, times: int) -> Tensor:
    return values.repeat_interleave(times, -2).repeat_interleave(times, -1)
