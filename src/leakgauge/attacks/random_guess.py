"""The first floor: uniform noise and a random label. It never looks at the update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from leakgauge.engine.randomness import per_trial, uniform
from leakgauge.types import Attack, DataSpec, Fact, Observation, Progress, Reconstruction


@dataclass(frozen=True)
class RandomGuess(Attack):
    """What a guess scores. Every table carries it.

    Example: `leakgauge attack random-guess --data photos32 --trials 8`
    """

    name: ClassVar[str] = "random-guess"
    summary: ClassVar[str] = "floor: uniform noise and a random label, the update unread"
    paper: ClassVar[str] = "baseline"
    needs: ClassVar[frozenset[Fact]] = frozenset({Fact.INPUT_SPEC, Fact.NUM_SAMPLES})
    baseline: ClassVar[bool] = True

    def solve(self, observation: Observation, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:  # noqa: ARG002
        data: DataSpec = observation.fact(Fact.INPUT_SPEC)
        samples: int = observation.fact(Fact.NUM_SAMPLES)
        inputs = uniform(seeds, "random-guess", (samples, *data.shape))
        labels = per_trial(seeds, "random-label", lambda g: torch.randint(data.classes, (samples,), generator=g))
        nothing = torch.zeros(len(seeds), dtype=torch.long)
        return Reconstruction(inputs, labels, nothing.float(), nothing, nothing)
