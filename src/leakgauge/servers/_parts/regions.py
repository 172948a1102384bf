"""From what the copies held behind pooling back to a picture.

Every value speaks of one square region of pixels: its maximum, one minus its minimum, or (nearly) its mean.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from leakgauge.servers._parts.blueprint import Blueprint
from leakgauge.servers._parts.copies import Copies, geometry

_NEVER_QUITE = 3e-8  # how near to 0 and 1 a squashed value may lie: the published clamp


def pictures(
    features: Tensor, plan: Blueprint, copies: Copies, blur: int, unseen: Tensor | float | None = None
) -> Tensor:
    """(M, *plan.features) -> (M, C, H, W): the middle of the bounds, smoothed, or the pixels themselves.

    `unseen`, a value or a picture (C, H, W), stands where no feature speaks of a pixel; their neighbours if not given.
    """
    features = unscaled(features, plan, copies)
    if copies.kind == "plain":
        return _plain(features, plan, copies)
    if copies.kind != "max":
        return _from_points(features, plan, copies, unseen)
    lower, upper = bounds(features, plan, copies)
    return _smoothed(((lower + upper) / 2).clamp(0, 1), blur)


def unscaled(features: Tensor, plan: Blueprint, copies: Copies) -> Tensor:
    """(M, C, ...) with the channels in use as they were in the picture: sigmoids, factor and offsets undone."""
    if not copies.places:
        return features
    place = copies.places[-1].to(features.device)
    own = features[:, place]
    for i in reversed(range(len(plan.convolutions))):
        if plan.convolutions[i].squashed:
            own = own.clamp(_NEVER_QUITE, 1 - _NEVER_QUITE).logit()
        scale = 1.0 if plan.convolutions[i].norm else copies.gain  # BatchNorm has undone the factor
        if copies.offsets:
            added = copies.offsets[i].to(own) * scale / copies.gain
            own = own - added.repeat(len(place) // len(added)).view(-1, *[1] * (own.dim() - 2))
        own = own / scale
    return features.index_copy(1, place, own)


def bounds(features: Tensor, plan: Blueprint, copies: Copies) -> tuple[Tensor, Tensor]:
    """What each pixel cannot be below and above: (M, C, H, W) twice, of unscaled features.

    Inputs in [0, 1] lie between them if nothing but copies reaches the channels in use.
    """
    extent, _, moves = geometry(plan, copies)
    unit = min(moves, default=extent)
    height, width = (-(-side // unit) for side in plan.size)  # in units
    upper = features.new_ones(len(features), copies.colours, height, width)
    lower = torch.zeros_like(upper)
    for down, right, values in _by_direction(features, copies, moves):
        high, low = values[:, : copies.colours], 1 - values[:, copies.colours :]
        for known, new, keep in ((upper, high, torch.minimum), (lower, low, torch.maximum)):
            spread = _spread(new, extent // unit)  # (M, C, rows, columns) in units
            rows = slice(down // unit, min(down // unit + spread.shape[2], height))
            columns = slice(right // unit, min(right // unit + spread.shape[3], width))
            part = spread[:, :, : rows.stop - rows.start, : columns.stop - columns.start]
            known[:, :, rows, columns] = keep(known[:, :, rows, columns], part)
    rows, columns = slice(plan.size[0]), slice(plan.size[1])
    return _spread(lower, unit)[:, :, rows, columns], _spread(upper, unit)[:, :, rows, columns]


def _by_direction(features: Tensor, copies: Copies, moves: list[int]) -> Iterator[tuple[int, int, Tensor]]:
    """(pixels down, pixels right, channels (M, base, h, w)) for each way through the layers that shift."""
    in_order = features[:, copies.places[-1].to(features.device)]
    ways = 4 ** len(moves)
    base = in_order.shape[1] // ways
    for way in range(ways):  # the first layer's direction changes fastest
        down = right = 0
        for layer, move in enumerate(moves):
            direction = way // 4**layer % 4
            down, right = down + move * (direction // 2), right + move * (direction % 2)
        yield down, right, in_order[:, way * base : (way + 1) * base]


def _from_points(features: Tensor, plan: Blueprint, copies: Copies, unseen: Tensor | float | None) -> Tensor:
    """Each value stands for one pixel: the middle of the region that it is the mean of, or the one that was copied."""
    extent, begin, moves = geometry(plan, copies)
    middle = begin + (extent // 2 if copies.kind == "average" else 0)
    height, width = plan.size
    picture = features.new_full((len(features), copies.colours, height, width), torch.nan)
    for down, right, channels in _by_direction(features, copies, moves):
        top, left = middle + down, middle + right
        rows = torch.arange(channels.shape[2], device=features.device) * extent + top
        columns = torch.arange(channels.shape[3], device=features.device) * extent + left
        inside_rows, inside_columns = (rows >= 0) & (rows < height), (columns >= 0) & (columns < width)
        kept = channels[:, :, inside_rows][:, :, :, inside_columns]
        picture[:, :, rows[inside_rows][:, None], columns[inside_columns][None]] = kept
    found = _filled(picture)
    if unseen is None:
        return found
    gap = extent // 2 ** len(moves)  # pixels from one that is known to the next
    known = ~picture[0, 0].isnan()
    seen = _reached(known.any(1), gap)[:, None] & _reached(known.any(0), gap)
    return torch.where(seen, found, torch.as_tensor(unseen, dtype=picture.dtype, device=picture.device))


def _reached(known: Tensor, gap: int) -> Tensor:
    """Places from the first known one to the last, and those that the last stands for."""
    places = torch.arange(len(known), device=known.device)
    found = places[known]
    return (places >= found[0]) & (places < found[-1] + gap)


def _filled(picture: Tensor) -> Tensor:
    """Pixels that are not known take the value of the nearest known row and column."""
    known = ~picture[0, 0].isnan()
    rows, columns = _nearest(known.any(1)), _nearest(known.any(0))
    return picture[:, :, rows][:, :, :, columns]


def _nearest(known: Tensor) -> Tensor:
    """For each place the nearest place that is known."""
    places = torch.arange(len(known), device=known.device)
    found = places[known]
    return found[(places[:, None] - found[None]).abs().argmin(1)]


def _plain(features: Tensor, plan: Blueprint, copies: Copies) -> Tensor:
    """No pooling: the features are the pixels, or what the network's normalisation made of them."""
    if copies.places:
        return features[:, copies.places[-1].to(features.device)]
    shape = (1, -1, *[1] * (features.dim() - 2))
    return features * features.new_tensor(plan.std).view(shape) + features.new_tensor(plan.mean).view(shape)


def _spread(values: Tensor, times: int) -> Tensor:
    return values.repeat_interleave(times, -2).repeat_interleave(times, -1)


def _smoothed(pictures: Tensor, size: int) -> Tensor:
    """A mean over size x size pixels: the published blur, whose Gaussian is far wider than its window."""
    if size <= 1:
        return pictures
    half = size // 2
    return F.avg_pool2d(F.pad(pictures, (half, size - 1 - half, half, size - 1 - half), mode="replicate"), size, 1)
