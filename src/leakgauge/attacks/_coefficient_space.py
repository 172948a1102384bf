"""The space that the coefficients of a batch span, and two proofs by it that a candidate is in the batch.

The gradient of a first linear layer is G = C^T X: row j is the sum over the samples k of c_kj x_k, where c_kj is the
loss's derivative in what unit j puts out. The columns of G therefore span the vectors c_k, one for each sample, as long
as there are fewer samples than units and than entries of a sample. Behind a ReLU a sample that leaves a unit off has a
zero there. A mixture of samples switches on other units than either of them does, and its vector is not in the space.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_SPARE = 16  # directions beyond the samples: what they hold is rounding, or noise
_GAP = 1e-2  # the spare directions must be this small beside the last of the samples' own
_INSIDE = 2e-2  # share of a vector that may lie outside; mixtures have most of theirs there
_VANISHES = 4e-4  # share of a vector that may be left where it should vanish
_ZEROS_PER_SAMPLE = 1.5  # with fewer zeros asked for, some vector comes near to them by chance
_LONE = 1e-2  # a second vector with the same zeros must miss by this much, or the first is not determined
_MOST_KINKS = 64  # units so near to their kink that they may count as on or off; more of them prove nothing
_TINY = 1e-300


@dataclass(frozen=True)
class CoefficientSpace:
    """An orthonormal basis of what the coefficients span."""

    basis: Tensor  # (H, N), float64
    gap: float  # the largest spare direction beside the least of the samples' own
    noise: float  # what an entry of the update is off by, by the spare directions

    def holds(self, coefficients: Tensor, kinks: Tensor) -> Tensor:
        """(K,) bool: does each vector (K, H) lie in the space, whatever it has at the units of `kinks` (K, H)?"""
        size = coefficients.norm(dim=1).clamp_min(_TINY)
        off = coefficients - (coefficients @ self.basis) @ self.basis.T
        inside: Tensor = off.norm(dim=1) <= _INSIDE * size
        for k in torch.nonzero(~inside & kinks.any(1))[:, 0].tolist():
            free = torch.nonzero(kinks[k])[:, 0]
            if len(free) <= _MOST_KINKS:
                inside[k] = self._rest(off[k], free) <= _INSIDE * size[k]
        return inside

    def _rest(self, off: Tensor, free: Tensor) -> Tensor:
        """What is left outside of a vector if the entries of these units are chosen as suits it best."""
        rows = self.basis[free]
        outward = torch.eye(len(off), dtype=off.dtype, device=off.device)[free] - rows @ self.basis.T  # (F, H)
        inner = outward[:, free] + 1e-12 * torch.eye(len(free)).to(off)
        best: Tensor = torch.linalg.solve(inner, off[free])
        return torch.sub(off, outward.T @ best).square().sum().sqrt()

    def with_zeros(self, silent: Tensor) -> tuple[Tensor, Tensor]:
        """The vector of the space that vanishes at the units of `silent` (K, H): (K, H), and (K,) is there just one?

        This asks nothing of the network behind the layer, nor of labels, loss or scale.
        """
        found, lone = [], []
        for row in silent:
            rows = self.basis[row]
            values, vectors = torch.linalg.eigh(rows.T @ rows)  # rising
            least, second = values[0].clamp_min(0).sqrt(), values[min(1, len(values) - 1)].clamp_min(0).sqrt()
            alone = second > torch.clamp(10 * least, min=_LONE) if len(values) > 1 else values[0] < 0.5
            found.append(self.basis @ vectors[:, 0])
            lone.append(alone & (least <= _VANISHES) & (row.sum() >= _ZEROS_PER_SAMPLE * len(values)))
        return torch.stack(found), torch.stack(lone)


def coefficient_space(weight: Tensor, bias: Tensor, samples: int) -> CoefficientSpace | None:
    """From the gradients (H, D) and (H,) in float64; None where they have not exactly as many directions as samples.

    That is so for more samples than units or entries, for a sample that is there twice, and under noise.
    """
    units, entries = weight.shape
    if samples + _SPARE > min(units, entries + 1):
        return None
    directions = torch.randn(
        entries + 1, samples + _SPARE, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    ).to(weight)
    sketch = weight @ directions[:-1] + bias[:, None] * directions[-1]
    vectors, sizes, _ = torch.linalg.svd(sketch, full_matrices=False)
    gap = float(sizes[samples] / sizes[samples - 1].clamp_min(_TINY))
    noise = float(sizes[samples]) / ((entries + 1) ** 0.5 * units**0.5)  # of an entry, from that of a whole direction
    return CoefficientSpace(vectors[:, :samples], gap, noise) if gap <= _GAP else None
