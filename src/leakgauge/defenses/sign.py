"""Signs only: of every entry one bit is sent, with one number per tensor beside them or none at all.

Bernstein et al., "signSGD: Compressed Optimisation for Non-Convex Problems", ICML 2018 (`scale="none"`: entries are
1 and -1). With `scale="mean"` the signs are multiplied by the tensor's mean magnitude, the choice that is nearest to
the tensor (Karimireddy et al. 2019, without their error feedback). One bit has no third value: zero counts as positive.

How to beat it: each of thousands of signs gives a half-space that holds the gradient, and a picture has fewer pixels.
The informed attacker asks only that its gradient has these signs, each tensor in units of its own mean magnitude, and
smoothness decides the rest. The first-layer ratio keeps little: the magnitudes of a row are gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.defenses._families import PerTensor, compressed
from leakgauge.matching.compression import Signs, beside
from leakgauge.matching.problem import Matching
from leakgauge.settings import setting
from leakgauge.types import Observation

_SMOOTHNESS = 3e-3  # weight of total variation; from 3e-3 to 0.1 the result differs by half a dB


@dataclass(frozen=True)
class Sign(PerTensor):
    """Example: `--defense sign:scale=none`"""

    name: ClassVar[str] = "sign"
    summary: ClassVar[str] = "send only the sign of every entry"
    paper: ClassVar[str] = "Bernstein et al. 2018 (signSGD); Karimireddy et al. 2019"

    scale: str = setting(
        "mean", "what the signs are multiplied by: each tensor's mean magnitude, or nothing", choices=("mean", "none")
    )

    def message(self, name: str, tensor: Tensor, seeds: Sequence[int]) -> Tensor:  # noqa: ARG002
        signs = torch.where(tensor < 0, -torch.ones_like(tensor), torch.ones_like(tensor))
        if self.scale == "none":
            return signs
        size = tensor.flatten(1).abs().mean(1) if tensor.dim() > 1 else tensor.abs()
        return signs * beside(size, tensor)

    def informs_matching(self, problem: Matching, observation: Observation, way: str) -> Matching:  # noqa: ARG002
        return compressed(problem, Signs(self.scale), _SMOOTHNESS)

    def bytes_up(self, tensors: Mapping[str, torch.Size], number_bytes: int = 4) -> int:
        scales = number_bytes * len(tensors) if self.scale == "mean" else 0
        return scales + sum(-(-shape.numel() // 8) for shape in tensors.values())
