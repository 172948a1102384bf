"""Sketch: of every tensor a short random linear image is sent, and the server makes an estimate of it.

`method="rotation"` (Konecny et al. 2016, section 4): random signs, a Hadamard transform, and a random part of the
coordinates. `method="count"`: a count sketch with one row, as in FetchSGD (Rothchild et al. 2020) but tensor by tensor,
without its momentum, error feedback and search for large entries. What the server estimates is unbiased over the
map's randomness.

The map is drawn from a public `seed`, the same for every client, so that sketches add up. It is the same in
every round too: in training an update then always lies in the same subspace, where a new seed each round would not.

How to beat it: the map is linear and public. The informed attacker applies it to its own gradient and compares
sketches, where the true sample costs nothing, and lets smoothness decide what the sketch does not say. The label cannot
be read off a sketched layer, so it is searched for with the picture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from leakgauge.defenses._compressing import knows_compression
from leakgauge.engine.sketching import METHODS, sketch_length, there_and_back
from leakgauge.settings import setting
from leakgauge.types import Attack, Batch, Defense, SharedUpdate, Step

_SMOOTHNESS = 3e-4  # weight of total variation; a third of it costs 3 dB


@dataclass(frozen=True)
class Sketch(Defense):
    """Example: `--defense sketch:size=0.1,method=count`"""

    name: ClassVar[str] = "sketch"
    summary: ClassVar[str] = "send a short random linear image of every tensor"
    paper: ClassVar[str] = "Konecny et al. 2016; Rothchild et al. 2020 (FetchSGD)"

    size: float = setting(0.25, "length of the sketch as a share of the tensor's, above 0 to 1", above=0, high=1)
    method: str = setting("rotation", "which map: rotated coordinates, or a count sketch", choices=METHODS)
    seed: int = setting(0, "public number that the map is drawn from", low=0)

    def wrap(self, step: Step) -> Step:
        def sketched(model: nn.Module, batch: Batch, seeds: Sequence[int]) -> SharedUpdate:
            return step(model, batch, seeds).map(self._estimate)

        return sketched

    def _estimate(self, name: str, tensor: Tensor) -> Tensor:
        """What the server makes of the sketch of one tensor (T, *parameter)."""
        rows = tensor.reshape(len(tensor), -1)
        applied = there_and_back(rows.shape[1], self.size, self.method, self.seed, name, tensor)
        return applied(rows).view_as(tensor)

    def adaptive(self, attack: Attack) -> tuple[Attack, ...]:
        rule = f"sketch/size={self.size}/method={self.method}/seed={self.seed}"
        return knows_compression(attack, rule, _SMOOTHNESS, readable=False)

    def bytes_up(self, tensors: Mapping[str, torch.Size], number_bytes: int = 4) -> int:
        return number_bytes * sum(sketch_length(shape.numel(), self.size) for shape in tensors.values())
