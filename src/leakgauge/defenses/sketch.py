"""Sketch: of every tensor a short random linear image is sent, and the server makes an estimate of it.

`method="rotation"` (Konecny et al. 2016, section 4): random signs, a Hadamard transform, and a random part of the
coordinates. `method="count"`: a count sketch with one row, as in FetchSGD (Rothchild et al. 2020) but tensor by tensor,
without its momentum, error feedback and search for large entries. The estimate is unbiased over the map's randomness.
The map is drawn from a public `seed`, the same for every client, so that sketches add up, and the same in every round:
in training all updates then lie in one subspace, unlike with a new seed each round.

How to beat it: the map is linear and public. The informed attacker applies it to its own gradient and compares
sketches, where the true sample costs nothing; smoothness decides the rest. The label cannot be read off a sketched
layer, so it is searched for with the picture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.defenses._families import PerTensor, compressed, with_labels_searched
from leakgauge.engine.compressing import METHODS, sketch_length, there_and_back
from leakgauge.matching.compression import Compared, Compression, Named
from leakgauge.matching.problem import Matching
from leakgauge.settings import setting
from leakgauge.types import Observation

_SMOOTHNESS = 3e-4  # weight of total variation; a third of it costs 3 dB


@dataclass(frozen=True)
class Sketch(PerTensor):
    """Example: `--defense sketch:size=0.1,method=count`"""

    name: ClassVar[str] = "sketch"
    summary: ClassVar[str] = "send a short random linear image of every tensor"
    paper: ClassVar[str] = "Konecny et al. 2016; Rothchild et al. 2020 (FetchSGD)"

    size: float = setting(0.25, "length of the sketch as a share of the tensor's, above 0 to 1", above=0, high=1)
    method: str = setting("rotation", "which map: rotated coordinates, or a count sketch", choices=METHODS)
    seed: int = setting(0, "public number that the map is drawn from", low=0)

    def message(self, name: str, tensor: Tensor, seeds: Sequence[int]) -> Tensor:  # noqa: ARG002
        """What the server makes of the sketch of one tensor."""
        rows = tensor.reshape(len(tensor), -1)
        return there_and_back(rows.shape[1], self.size, self.method, self.seed, name, tensor)(rows).view_as(tensor)

    def informs_matching(self, problem: Matching, observation: Observation, way: str) -> Matching:  # noqa: ARG002
        found = compressed(problem, Sketched(self.size, self.method, self.seed), _SMOOTHNESS)
        return with_labels_searched(found)  # no row of the last layer can be read

    def bytes_up(self, tensors: Mapping[str, torch.Size], number_bytes: int = 4) -> int:
        return number_bytes * sum(sketch_length(shape.numel(), self.size) for shape in tensors.values())


@dataclass(frozen=True)
class Sketched(Compression):
    """A public linear map of each tensor: the same map is applied to the guess's gradient."""

    size: float
    method: str
    seed: int

    def against(self, observed: Named, distance: str) -> Callable[[Named], Compared]:  # noqa: ARG002
        maps = {
            name: there_and_back(t[0].numel(), self.size, self.method, self.seed, name, t)
            for name, t in observed.items()
        }
        theirs = {name: self.size * t for name, t in observed.items()}  # an unbiased estimate is 1/size times too long

        def compared(gradients: Named) -> Compared:
            seen = {name: m(gradients[name].flatten(1)).view_as(gradients[name]) for name, m in maps.items()}
            return {name: self.size * t for name, t in seen.items()}, theirs

        return compared
