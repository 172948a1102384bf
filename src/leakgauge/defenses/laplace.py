"""Additive Laplace noise: g + n, n ~ Laplace(0, scale) on every entry; its variance is 2 scale^2.

As with Gaussian noise, nothing is promised without clipping. An attacker who knows it compares gradients by absolute
distance, the likelihood of this noise, with a smoothness prior.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from leakgauge.client.sums import mean_of_rounds
from leakgauge.defenses._noise import KnownNoise
from leakgauge.defenses.gaussian import spread_of
from leakgauge.engine.randomness import per_trial
from leakgauge.matching.noise import UPDATE, Noise
from leakgauge.settings import setting
from leakgauge.types import Batch, SharedUpdate, Step


@dataclass(frozen=True)
class Laplace(KnownNoise):
    """Example: `--defense laplace:scale=0.01`"""

    name: ClassVar[str] = "laplace"
    summary: ClassVar[str] = "add Laplace noise to every entry of the update"
    paper: ClassVar[str] = "Zhu et al. 2019; Wei et al. 2020 (CPL), Table 8"

    scale: float = setting(0.01, "scale b of Laplace(0, b); the variance is 2 b^2; 0 adds none", low=0)
    relative: bool = setting(False, "in units of each tensor's own standard deviation")

    def wrap(self, step: Step) -> Step:
        if self.scale == 0:
            return step

        def noisy(model: nn.Module, batch: Batch, seeds: Sequence[int]) -> SharedUpdate:
            shared = step(model, batch, seeds)
            scale_of = (lambda t: self.scale * spread_of(t)) if self.relative else (lambda _: self.scale)
            return shared.map(lambda name, t: t + scale_of(t) * _laplace(seeds, name, t.shape[1:]).to(t))

        return noisy

    @property
    def idle(self) -> bool:
        return self.scale == 0

    @property
    def noise(self) -> Noise | None:
        return None if self.relative else Noise(self.scale, UPDATE, "l1")

    def combined(self, updates: Sequence[SharedUpdate]) -> SharedUpdate:
        return mean_of_rounds(updates)


def _laplace(seeds: Sequence[int], name: str, shape: torch.Size) -> torch.Tensor:
    """(T, *shape) independent Laplace(0, 1): the difference of two exponentials."""

    def draw(g: torch.Generator) -> torch.Tensor:
        both = torch.empty(2, *shape).exponential_(generator=g)
        return both[0] - both[1]

    return per_trial(seeds, f"laplace/{name}", draw)
