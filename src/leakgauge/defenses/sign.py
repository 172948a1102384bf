"""Signs only: of every entry one bit is sent, with one number per tensor beside them or none at all.

Bernstein et al., "signSGD: Compressed Optimisation for Non-Convex Problems", ICML 2018 (`scale="none"`: entries are
1 and -1). With `scale="mean"` the signs are multiplied by the tensor's mean magnitude, the choice that is nearest to
the tensor (Karimireddy et al. 2019, without their error feedback). One bit has no third value: zero counts as positive.

How to beat it: thousands of signs still say on which side of thousands of planes the gradient lies, and a picture has
fewer pixels than that. The informed attacker asks only that its gradient has the signs that were sent, tensor by tensor
in units of its own mean magnitude, and lets smoothness decide the rest. The first-layer ratio keeps little: the
magnitudes of a row are gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from leakgauge.defenses._compressing import compressed
from leakgauge.matching.compression import Signs
from leakgauge.matching.first_layer import LEAST_SQUARES, FirstLayer
from leakgauge.matching.problem import Matching
from leakgauge.settings import setting
from leakgauge.types import Batch, Defense, Observation, SharedUpdate, Step

_SMOOTHNESS = 3e-3  # weight of total variation; from 3e-3 to 0.1 the result differs by half a dB


@dataclass(frozen=True)
class Sign(Defense):
    """Example: `--defense sign:scale=none`"""

    name: ClassVar[str] = "sign"
    summary: ClassVar[str] = "send only the sign of every entry"
    paper: ClassVar[str] = "Bernstein et al. 2018 (signSGD); Karimireddy et al. 2019"

    scale: str = setting(
        "mean", "what the signs are multiplied by: each tensor's mean magnitude, or nothing", choices=("mean", "none")
    )

    def wrap(self, step: Step) -> Step:
        def signed(model: nn.Module, batch: Batch, seeds: Sequence[int]) -> SharedUpdate:
            return step(model, batch, seeds).map(lambda _, t: self._message(t))

        return signed

    def _message(self, tensor: Tensor) -> Tensor:
        """What is sent of one tensor (T, *parameter)."""
        signs = torch.where(tensor < 0, -torch.ones_like(tensor), torch.ones_like(tensor))
        if self.scale == "none":
            return signs
        size = tensor.flatten(1).abs().mean(1) if tensor.dim() > 1 else tensor.abs()
        return signs * size.view(-1, *[1] * (tensor.dim() - 1))

    def informs_matching(self, problem: Matching, observation: Observation, way: str) -> Matching:  # noqa: ARG002
        return compressed(problem, Signs(self.scale), _SMOOTHNESS)

    def informs_first_layer(self, problem: FirstLayer, observation: Observation, way: str) -> FirstLayer:  # noqa: ARG002
        return problem.replace(combine=LEAST_SQUARES)  # their errors average out

    def bytes_up(self, tensors: Mapping[str, torch.Size], number_bytes: int = 4) -> int:
        scales = number_bytes * len(tensors) if self.scale == "mean" else 0
        return scales + sum(-(-shape.numel() // 8) for shape in tensors.values())
