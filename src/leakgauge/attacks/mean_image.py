"""The second floor: the mean of public data of the same kind. It never looks at the update.

A constant or mean picture scores 12 to 14 dB on ordinary photos; a reconstruction that does not beat it shows nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from leakgauge.types import Attack, Batch, Fact, Observation, Progress, Reconstruction


@dataclass(frozen=True)
class MeanImage(Attack):
    """What the average public sample scores. Every table carries it.

    Example: `leakgauge attack mean-image --data photos32 --trials 8`
    """

    name: ClassVar[str] = "mean-image"
    summary: ClassVar[str] = "floor: the mean of public samples and their commonest label, the update unread"
    paper: ClassVar[str] = "baseline"
    needs: ClassVar[frozenset[Fact]] = frozenset({Fact.NUM_SAMPLES, Fact.PUBLIC_DATA})
    baseline: ClassVar[bool] = True

    def solve(self, observation: Observation, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:  # noqa: ARG002
        public: Batch = observation.fact(Fact.PUBLIC_DATA)
        shape = (len(seeds), observation.fact(Fact.NUM_SAMPLES))
        mean = public.inputs[0].mean(0)
        inputs = mean.expand(*shape, *mean.shape).clone()
        labels = public.classes[0].mode().values.expand(shape).clone()
        nothing = torch.zeros(len(seeds), dtype=torch.long)
        return Reconstruction(inputs, labels, torch.zeros(len(seeds)), nothing, nothing)
