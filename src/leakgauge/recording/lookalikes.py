"""Other batches with the same labels: a batch counts as an update's own only if it can be distinguished from them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from leakgauge.data import load
from leakgauge.engine.randomness import generator
from leakgauge.types import Batch, DataSpec

_NOISE = 0.2  # of the range, in samples that are changed a little
_POOLED = 2  # batches of samples at hand
_UNRELATED = 4  # batches of pictures that come with the program
_APART = 1e-3  # a batch less different than that is the same one


def near_batches(batch: Batch, pools: Sequence[Batch], seed: int, data: DataSpec) -> list[Batch]:
    """What must not give the same update where nothing is drawn: samples at hand with these labels, the batch mirrored
    and noisy, and the batch with only one of several samples changed so.
    """
    g, x = generator(seed, "near batches"), batch.inputs
    found = _pooled(batch, pools, g)
    for changed in (_turned(x, data), _noisy(x, g)):
        found.append(changed)
        if x.shape[1] > 1:
            place = int(torch.randint(x.shape[1], (), generator=g))
            one = x.clone()
            one[:, place] = changed[:, place]
            found.append(one)
    return _different(batch, found)


def other_batches(batch: Batch, pools: Sequence[Batch], seed: int, data: DataSpec) -> list[Batch]:
    """What must be distinguished where something is drawn: samples at hand with these labels, or if there are none the
    batch half-way to photographs; and its own samples with one another's labels.
    """
    g, x = generator(seed, "other batches"), batch.inputs
    found = _pooled(batch, pools, g) or [(x + other) / 2 for other in _unrelated(x, data, g)[:_POOLED]]
    if bool((batch.labels.roll(1, 1) != batch.labels).any()):
        found.append(x.roll(1, 1))
    return _different(batch, found)


def unlike_batches(batch: Batch, seed: int, data: DataSpec) -> list[Batch]:
    """Anything else with these labels: photographs, the batch mirrored, noisy or inverted, noise and grey."""
    g, x = generator(seed, "unlike batches"), batch.inputs
    noise = torch.rand(x.shape, generator=g).to(x)
    found = [*_unrelated(x, data, g), _turned(x, data), _noisy(x, g), noise, torch.full_like(x, 0.5), 1 - x]
    return _different(batch, [*found, _blurred(noise)] if data.kind == "image" else found)


def _different(batch: Batch, inputs: Sequence[Tensor]) -> list[Batch]:
    return [Batch(other, batch.labels) for other in inputs if float((other - batch.inputs).abs().max()) > _APART]


def _pooled(batch: Batch, pools: Sequence[Batch], g: torch.Generator) -> list[Tensor]:
    pools = [pool for pool in pools if pool.labels.shape[1]]
    if not pools:
        return []
    inputs = torch.cat([pool.inputs[0] for pool in pools]).to(batch.inputs)
    labels, own = torch.cat([pool.classes[0] for pool in pools]).to(batch.inputs.device), batch.classes[0].tolist()
    places = {label: (labels == label).nonzero()[:, 0] for label in set(own)}
    if not all(len(p) for p in places.values()):
        return []
    drawn = [
        torch.stack([places[y][torch.randint(len(places[y]), (), generator=g)] for y in own]) for _ in range(_POOLED)
    ]
    return [inputs[rows][None] for rows in drawn]


def _turned(x: Tensor, data: DataSpec) -> Tensor:
    return x.flip(-1) if data.kind == "image" else x.roll(1, -1)


def _noisy(x: Tensor, g: torch.Generator) -> Tensor:
    return ((1 - _NOISE) * x + _NOISE * torch.rand(x.shape, generator=g).to(x)).clamp(0, 1)


def _blurred(noise: Tensor) -> Tensor:
    """Spots an eighth of a picture wide, over the whole range."""
    flat = noise.flatten(0, 1)
    coarse = F.interpolate(F.adaptive_avg_pool2d(flat, 8), flat.shape[-2:], mode="bilinear")
    low, high = coarse.amin((1, 2, 3), keepdim=True), coarse.amax((1, 2, 3), keepdim=True)
    return ((coarse - low) / (high - low).clamp_min(1e-6)).view_as(noise)


def _unrelated(x: Tensor, data: DataSpec, g: torch.Generator) -> list[Tensor]:
    """Embedded photographs in the shape of the samples (1, N, C, H, W); of a table's rows (1, N, F) mixed features."""
    if data.kind != "image":
        flat = x.flatten(2)
        orders = [torch.randperm(flat.shape[2], generator=g).to(x.device) for _ in range(_UNRELATED)]
        return [flat[:, :, order].view_as(x) for order in orders]
    samples, (channels, height, width) = x.shape[1], x.shape[2:]
    pictures = load("photos32")
    found = []
    for _ in range(_UNRELATED):
        some = pictures.take(torch.randint(len(pictures), (samples,), generator=g))[0].to(x)
        some = F.interpolate(some, (height, width), mode="bilinear")
        some = some if channels == some.shape[1] else some.mean(1, keepdim=True).expand(-1, channels, -1, -1)
        found.append(some[None])
    return found
