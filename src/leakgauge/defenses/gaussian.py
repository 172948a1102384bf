"""Additive Gaussian noise: g + n, n ~ N(0, std^2) on every entry of the update.

Without clipping the sensitivity is unbounded, so this promises nothing: `guarantee` stays None.

How to beat it. Squared distance already is the noise's likelihood; an attacker who knows `std` stops where the noise
alone explains the rest and lets a smoothness prior decide the remainder. The first-layer ratio fits all rows at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from leakgauge.defenses._families import AddedNoise, spread_of
from leakgauge.engine.randomness import normal
from leakgauge.matching.noise import UPDATE, Noise
from leakgauge.settings import setting


@dataclass(frozen=True)
class Gaussian(AddedNoise):
    """Example: `--defense gaussian:std=0.01`"""

    name: ClassVar[str] = "gaussian"
    summary: ClassVar[str] = "add Gaussian noise to every entry of the update"
    paper: ClassVar[str] = "Zhu et al. 2019; Wei et al. 2020 (CPL), Table 8"
    strength: ClassVar[str] = "std"

    std: float = setting(0.01, "standard deviation of the noise; 0 adds none", low=0)
    relative: bool = setting(False, "in units of each tensor's own standard deviation")

    def message(self, name: str, tensor: Tensor, seeds: Sequence[int]) -> Tensor:
        drawn = normal(seeds, f"gaussian/{name}", tensor.shape[1:]).to(tensor)
        return tensor + self.std * (spread_of(tensor) if self.relative else 1.0) * drawn

    @property
    def noise(self) -> Noise | None:
        return None if self.relative else Noise(self.std, UPDATE, "l2")
