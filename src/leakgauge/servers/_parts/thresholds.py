"""A number read off every sample, and the values that cut its distribution into equally likely bins.

The number is s = q.x for a fixed direction q. Fowl et al. 2022 know its distribution from the literature: Laplace for a
cosine over natural images, normal for a random direction. Public samples say it better, because pixels are correlated.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from leakgauge.engine.randomness import generator
from leakgauge.types import DataSpec

QUERIES = ("randn", "fourier", "brightness")
_FOURIER_LOW = 0.33  # stands in for the frequency 0 in the cosine's scale
_FOURIER_SCALE = 4.0
_BANDWIDTH = 0.5  # of Silverman's rule: with 512 public samples nearly as many single bins as with the true quantiles
_GRID = 8192  # points at which the smoothed distribution is tabulated


def query_vector(kind: str, data: DataSpec, mode: int, secret: int) -> tuple[Tensor, Tensor]:
    """(q (d,), offset (1,)) in float64: q.x - offset is the statistic of the standardised sample x in [0, 1]."""
    size = math.prod(data.shape)
    if kind == "randn":
        drawn = torch.randn(size, generator=generator(secret, "imprint/query"), dtype=torch.float64)
        spread = drawn.std() if size > 1 else drawn.abs()
        standard = (drawn - drawn.mean() if size > 1 else drawn) / spread / math.sqrt(size)
    elif kind == "fourier":
        place = torch.arange(size, dtype=torch.float64) + 0.5
        standard = torch.cos(math.pi / size * place * mode) * _FOURIER_SCALE * max(mode, _FOURIER_LOW) / size
    else:
        standard = torch.full((size,), 1 / size, dtype=torch.float64)
    channel = (-1, *[1] * (len(data.shape) - 1))
    centre, unit = (
        torch.tensor(given or (usual,), dtype=torch.float64).view(channel).expand(data.shape).flatten()
        for given, usual in ((data.mean, 0.5), (data.std, 0.25))
    )
    query = standard / unit
    return query, (query @ centre)[None]


def analytic_quantiles(kind: str, levels: Tensor, offset: Tensor) -> Tensor:
    """Where the statistic's published distribution reaches these levels (K,)."""
    if kind == "randn":
        normal: Tensor = torch.special.ndtri(levels)
        return normal + offset
    deviation = 1.0 if kind == "fourier" else 1 / (_FOURIER_SCALE * _FOURIER_LOW)  # brightness is a cosine of mode 0
    laplace = torch.distributions.Laplace(levels.new_zeros(()), levels.new_tensor(deviation / math.sqrt(2)))
    quantiles: Tensor = laplace.icdf(levels)  # type: ignore[no-untyped-call]
    return quantiles + offset


def public_quantiles(statistic: Tensor, levels: Tensor) -> Tensor:
    """The same from values (S,) of public samples, each blurred by a normal kernel: no steps, and a smooth tail."""
    quarters = torch.quantile(statistic, statistic.new_tensor([0.25, 0.75]))
    middle = (quarters[1] - quarters[0]) / 1.349  # a normal distribution's standard deviation
    spread = (
        torch.minimum(statistic.std(), middle) if len(statistic) > 1 and middle > 0 else statistic.std(correction=0)
    )
    least = 1e-6 * (1 + statistic.abs().max())  # where all samples agree
    width = (_BANDWIDTH * 1.06 * spread * len(statistic) ** -0.2).clamp_min(least)
    low, high = float(statistic.min() - 6 * width), float(statistic.max() + 6 * width)
    grid = torch.linspace(low, high, _GRID, dtype=statistic.dtype, device=statistic.device)
    reached = torch.cat(
        [torch.special.ndtr((part[:, None] - statistic) / width).mean(1) for part in torch.split(grid, 512)]
    )
    right = torch.searchsorted(reached, levels).clamp(1, _GRID - 1)
    below, above = reached[right - 1], reached[right]
    share = ((levels - below) / (above - below).clamp_min(1e-30)).clamp(0, 1)
    return grid[right - 1] + share * (grid[right] - grid[right - 1])


def expected_alone(samples: int, bins: int) -> float:
    """How many of n independent samples sit alone in one of k equally likely bins: n (1 - 1/k)^(n - 1)."""
    return float(samples * (1 - 1 / bins) ** (samples - 1))
