"""The cases: clients whose two classes are Gaussians in the unit square, alike or different.

The toy of FedBoosting (Ren et al. 2022) has two clients with samples from different Gaussians. Its parameters were not
published with it, so these are ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.data import Dataset
from leakgauge.engine.randomness import generator
from leakgauge.federation.poisoning import Poison
from leakgauge.types import DataSpec

SPEC = DataSpec("two-gaussians", (2,), 2, "tabular")


@dataclass(frozen=True)
class Holding:
    """The samples of one client: two classes of the same width, class 1 in direction `angle` from class 0."""

    angle: float  # degrees
    gap: float  # from the middle to either class
    std: float
    middle: tuple[float, float] = (0.5, 0.5)

    def draw(self, samples: int, seed: int, role: str) -> tuple[Tensor, Tensor]:
        labels = torch.arange(samples) % 2
        offset = self.gap * torch.tensor([math.cos(math.radians(self.angle)), math.sin(math.radians(self.angle))])
        noise = self.std * torch.randn(samples, 2, generator=generator(seed, role))
        inputs = torch.tensor(self.middle) + (2 * labels[:, None] - 1) * offset + noise
        return inputs.clamp(0, 1), labels


@dataclass(frozen=True)
class Case:
    summary: str
    clients: tuple[Holding, ...]
    poison: Poison | None = None

    def draw(self, split: str, samples: int, seed: int) -> tuple[Dataset, list[Tensor]]:
        """`samples` samples of each client as one data set, and the indices of each client."""
        parts = [c.draw(samples, seed, f"two-gaussians/{split}/{i}") for i, c in enumerate(self.clients)]
        data = Dataset(SPEC, torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts]))
        return data, list(torch.arange(len(data)).split(samples))  # type: ignore[no-untyped-call]


_WIDE = Holding(angle=0, gap=0.2, std=0.1)

CASES: Mapping[str, Case] = {
    "alike": Case(
        "two clients as good as each other, their boundaries at a right angle",
        (Holding(angle=0, gap=0.15, std=0.08), Holding(angle=90, gap=0.15, std=0.08)),
    ),
    "narrow": Case(
        "one client sees the whole square, the other a strip where its boundary runs another way",
        (_WIDE, Holding(angle=72, gap=0.06, std=0.04, middle=(0.5, 0.8))),
    ),
    "flipped": Case("ten clients alike, one trains on flipped labels", (_WIDE,) * 10, Poison(kind="flip")),
    "noise": Case(
        "ten clients alike, one sends noise three times as large as the model",
        (_WIDE,) * 10,
        Poison(kind="noise", scale=3.0),
    ),
    "liar": Case(
        "ten clients alike, one trains on flipped labels and lies about losses", (_WIDE,) * 10, Poison(lies=True)
    ),
}
