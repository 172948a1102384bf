"""Additive Gaussian noise: g + n, n ~ N(0, std^2) on every entry of the update.

Without clipping the sensitivity is unbounded, so this promises nothing: `guarantee` stays None.

How to beat it. Squared distance already is the noise's likelihood; an attacker who knows `std` stops where the noise
alone explains the rest and lets a smoothness prior decide the remainder. The first-layer ratio fits all rows at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from leakgauge.client.sums import mean_of_rounds
from leakgauge.defenses._noise import KnownNoise
from leakgauge.engine.randomness import normal
from leakgauge.matching.noise import UPDATE, Noise
from leakgauge.settings import setting
from leakgauge.types import Batch, SharedUpdate, Step


@dataclass(frozen=True)
class Gaussian(KnownNoise):
    """Example: `--defense gaussian:std=0.01`"""

    name: ClassVar[str] = "gaussian"
    summary: ClassVar[str] = "add Gaussian noise to every entry of the update"
    paper: ClassVar[str] = "Zhu et al. 2019; Wei et al. 2020 (CPL), Table 8"

    std: float = setting(0.01, "standard deviation of the noise; 0 adds none", low=0)
    relative: bool = setting(False, "in units of each tensor's own standard deviation")

    def wrap(self, step: Step) -> Step:
        if self.std == 0:
            return step

        def noisy(model: nn.Module, batch: Batch, seeds: Sequence[int]) -> SharedUpdate:
            shared = step(model, batch, seeds)
            units = spread_of if self.relative else _ones
            return shared.map(
                lambda name, t: t + self.std * units(t) * normal(seeds, f"gaussian/{name}", t.shape[1:]).to(t)
            )

        return noisy

    @property
    def idle(self) -> bool:
        return self.std == 0

    @property
    def noise(self) -> Noise | None:
        return None if self.relative else Noise(self.std, UPDATE, "l2")

    def combined(self, updates: Sequence[SharedUpdate]) -> SharedUpdate:
        return mean_of_rounds(updates)


def spread_of(tensor: Tensor) -> Tensor:
    """The standard deviation of each trial's entries: (T, 1, ...)."""
    spread = tensor.flatten(1).std(1, unbiased=False)
    return spread.view(-1, *[1] * (tensor.dim() - 1))


def _ones(_: Tensor) -> float:
    return 1.0
