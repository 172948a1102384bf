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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.defenses._families import PerTensor, compressed
from leakgauge.engine.compressing import best_approximation, factors_length, is_factored, power_approximation
from leakgauge.engine.randomness import normal
from leakgauge.matching.compression import Compared, Compression, Named
from leakgauge.matching.problem import Matching
from leakgauge.settings import setting
from leakgauge.types import Observation

_FULL_RANK = 1e-5  # a singular value below this share of the largest is rounding
_SMOOTHNESS = 1e-3  # weight of total variation; a tenth of it costs 7 dB at rank 1


@dataclass(frozen=True)
class LowRank(PerTensor):
    """Example: `--defense low-rank:rank=1,iterations=1`"""

    name: ClassVar[str] = "low-rank"
    summary: ClassVar[str] = "send an approximation of low rank of every matrix and kernel"
    paper: ClassVar[str] = "Konecny et al. 2016; Vogels et al. 2019 (PowerSGD)"

    rank: int = setting(1, "rank of what is sent", low=1)
    iterations: int = setting(0, "power iterations from a random start; 0 for the best approximation", low=0)

    def message(self, name: str, tensor: Tensor, seeds: Sequence[int]) -> Tensor:
        """What the factors of one tensor multiply to."""
        if not is_factored(tensor.shape[1:], self.rank):
            return tensor
        matrices = tensor.flatten(2)  # (T, m, n)
        if self.iterations == 0:
            return best_approximation(matrices, self.rank).view_as(tensor)
        start = normal(seeds, f"low-rank/{name}", (matrices.shape[2], self.rank)).to(tensor)
        return power_approximation(matrices, start, self.iterations).view_as(tensor)

    def informs_matching(self, problem: Matching, observation: Observation, way: str) -> Matching:  # noqa: ARG002
        return compressed(problem, LowRankMatrices(self.rank, exact=self.iterations == 0), _SMOOTHNESS)

    def bytes_up(self, tensors: Mapping[str, torch.Size], number_bytes: int = 4) -> int:
        r = self.rank
        numbers = (factors_length(s, r) if is_factored(s, r) else s.numel() for s in tensors.values())
        return number_bytes * sum(numbers)


@dataclass(frozen=True)
class LowRankMatrices(Compression):
    """The best approximation of rank r of each matrix, or its projection on r columns found by power iteration.

    A projection U U^T M tells U^T M exactly. The best approximation tells M V too, V its row space; only what
    lies outside both is unknown. A message of lower rank than r is the whole matrix.
    """

    rank: int
    exact: bool

    def against(self, observed: Named, distance: str) -> Callable[[Named], Compared]:  # noqa: ARG002
        spaces = {name: self._spaces(t) for name, t in observed.items() if is_factored(t.shape[1:], self.rank)}

        def compared(gradients: Named) -> Compared:
            mine = {name: gradients[name] for name in observed}
            for name, (unseen_columns, unseen_rows) in spaces.items():
                matrix = mine[name].flatten(2)
                unknown = unseen_columns @ matrix
                unknown = unknown @ unseen_rows if self.exact else unknown
                mine[name] = (matrix - unknown).view_as(mine[name])
            return mine, dict(observed)

        return compared

    def _spaces(self, tensor: Tensor) -> tuple[Tensor, Tensor]:
        """Projections on what a message's columns and rows do not span; both zero where it is the whole matrix."""
        left, values, right = torch.linalg.svd(tensor.flatten(2), full_matrices=False)
        cut = (values[:, self.rank - 1] > _FULL_RANK * values[:, 0]).to(tensor)[:, None, None]
        columns, rows = left[..., : self.rank], right[:, : self.rank].mT
        eyes = (torch.eye(m.shape[1], dtype=tensor.dtype, device=tensor.device) for m in (columns, rows))
        outside = [cut * (eye - m @ m.mT) for eye, m in zip(eyes, (columns, rows), strict=True)]
        return outside[0], outside[1]
