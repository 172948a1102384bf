"""Low rank: each matrix is replaced by one of rank r, which is sent as two thin factors.

Konecny et al. 2016 (structured updates); Vogels et al., "PowerSGD", NeurIPS 2019 (power iteration). A kernel (out, in,
h, w) is the matrix (out, in h w). Vectors, and matrices that are shorter as they are, are sent as they are.
`iterations=0` takes the best approximation (by singular values). `iterations=k` starts from random columns of the
trial's own and projects on what k power iterations make of them; PowerSGD has k = 1 and begins with the last
round's columns, and its error feedback is not played here.

How to beat it. The gradient of a dense layer for one sample has rank one: nothing is lost. Otherwise the message spans
the columns U it was projected on, so U^T g is known exactly, and with the best approximation g V for its rows V too.
The informed attacker compares only these and lets smoothness decide the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from leakgauge.defenses._compressing import knows_compression
from leakgauge.engine.factoring import best_approximation, factors_length, is_factored, power_approximation
from leakgauge.engine.randomness import normal
from leakgauge.settings import setting
from leakgauge.types import Attack, Batch, Defense, SharedUpdate, Step

_SMOOTHNESS = 1e-3  # weight of total variation; a tenth of it costs 7 dB at rank 1


@dataclass(frozen=True)
class LowRank(Defense):
    """Example: `--defense low-rank:rank=1,iterations=1`"""

    name: ClassVar[str] = "low-rank"
    summary: ClassVar[str] = "send an approximation of low rank of every matrix and kernel"
    paper: ClassVar[str] = "Konecny et al. 2016; Vogels et al. 2019 (PowerSGD)"

    rank: int = setting(1, "rank of what is sent", low=1)
    iterations: int = setting(0, "power iterations from a random start; 0 for the best approximation", low=0)

    def wrap(self, step: Step) -> Step:
        def factored(model: nn.Module, batch: Batch, seeds: Sequence[int]) -> SharedUpdate:
            return step(model, batch, seeds).map(lambda name, t: self._message(name, t, seeds))

        return factored

    def _message(self, name: str, tensor: Tensor, seeds: Sequence[int]) -> Tensor:
        """What the factors of one tensor (T, *parameter) multiply to."""
        if not is_factored(tensor.shape[1:], self.rank):
            return tensor
        matrices = tensor.flatten(2)  # (T, m, n)
        if self.iterations == 0:
            return best_approximation(matrices, self.rank).view_as(tensor)
        start = normal(seeds, f"low-rank/{name}", (matrices.shape[2], self.rank)).to(tensor)
        return power_approximation(matrices, start, self.iterations).view_as(tensor)

    def adaptive(self, attack: Attack) -> tuple[Attack, ...]:
        return knows_compression(attack, f"low-rank/rank={self.rank}/exact={self.iterations == 0}", _SMOOTHNESS)

    def bytes_up(self, tensors: Mapping[str, torch.Size], number_bytes: int = 4) -> int:
        numbers = (
            factors_length(shape, self.rank) if is_factored(shape, self.rank) else shape.numel()
            for shape in tensors.values()
        )
        return number_bytes * sum(numbers)
