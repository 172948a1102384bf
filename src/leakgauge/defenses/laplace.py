"""Additive Laplace noise: g + n, n ~ Laplace(0, scale) on every entry; its variance is 2 scale^2.

As with Gaussian noise, nothing is promised without clipping. An attacker who knows it compares gradients by absolute
distance, the likelihood of this noise, with a smoothness prior.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.defenses._families import AddedNoise, spread_of
from leakgauge.engine.randomness import per_trial
from leakgauge.matching.noise import UPDATE, Noise
from leakgauge.settings import setting


@dataclass(frozen=True)
class Laplace(AddedNoise):
    """Example: `--defense laplace:scale=0.01`"""

    name: ClassVar[str] = "laplace"
    summary: ClassVar[str] = "add Laplace noise to every entry of the update"
    paper: ClassVar[str] = "Zhu et al. 2019; Wei et al. 2020 (CPL), Table 8"
    strength: ClassVar[str] = "scale"

    scale: float = setting(0.01, "scale b of Laplace(0, b); the variance is 2 b^2; 0 adds none", low=0)
    relative: bool = setting(False, "in units of each tensor's own standard deviation")

    def message(self, name: str, tensor: Tensor, seeds: Sequence[int]) -> Tensor:
        def draw(g: torch.Generator) -> Tensor:
            """Laplace(0, 1): the difference of two exponentials."""
            both = torch.empty(2, *tensor.shape[1:]).exponential_(generator=g)
            return both[0] - both[1]

        drawn = per_trial(seeds, f"laplace/{name}", draw).to(tensor)
        return tensor + self.scale * (spread_of(tensor) if self.relative else 1.0) * drawn

    @property
    def noise(self) -> Noise | None:
        return None if self.relative else Noise(self.scale, UPDATE, "l1")
