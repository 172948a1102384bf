"""Gradient pruning: the smallest entries of the update are not sent.

`scope="tensor"` drops a share of every tensor, as most papers do; `scope="global"` a share of the whole update, which
can empty a tensor (CPL). Exactly floor(share x entries) are dropped; nothing is kept for later rounds.

How to beat it: the zeros are visible, so an attacker compares only the entries that survived.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from leakgauge.defenses._families import PerTensor
from leakgauge.matching.problem import Matching
from leakgauge.settings import setting
from leakgauge.types import Batch, Observation, SharedUpdate, Step

_SCOPES = ("tensor", "global")
_INDEX_BYTES = 4  # of an entry's place
_HOLE_FILLING = 1e-4  # weight of total variation; from 1e-5 to 1e-3 the result differs by 2 to 4 dB


@dataclass(frozen=True)
class Prune(PerTensor):
    """Example: `--defense prune:share=0.9,scope=global`"""

    name: ClassVar[str] = "prune"
    summary: ClassVar[str] = "send only the largest entries of the update"
    paper: ClassVar[str] = "Zhu et al. 2019; Wei et al. 2020 (CPL), Table 7"
    strength: ClassVar[str] = "share"
    leaves_zeros: ClassVar[bool] = True

    share: float = setting(0.9, "share of entries that is dropped, 0 to 1", low=0, high=1)
    scope: str = setting("tensor", "drop this share of each tensor, or of the whole update", choices=_SCOPES)

    def message(self, name: str, tensor: Tensor, seeds: Sequence[int]) -> Tensor:  # noqa: ARG002
        return drop_smallest(tensor.flatten(1), self.share).view_as(tensor)

    def wrap(self, step: Step) -> Step:
        if self.scope == "tensor":
            return super().wrap(step)

        def pruned(model: nn.Module, batch: Batch, seeds: Sequence[int]) -> SharedUpdate:
            shared = step(model, batch, seeds)
            flat = {n: t.flatten(1) for n, t in shared.tensors.items()}
            whole = drop_smallest(torch.cat(list(flat.values()), 1), self.share)
            parts = dict(zip(flat, torch.split(whole, [t.shape[1] for t in flat.values()], 1), strict=True))
            return shared.map(lambda n, t: parts[n].view_as(t))

        return step if self.idle else pruned

    def informs_matching(self, problem: Matching, observation: Observation, way: str) -> Matching:  # noqa: ARG002
        """What was dropped leaves holes, which smoothness fills in a picture."""
        return problem.replace(match_nonzero=True).with_variation(_HOLE_FILLING)

    def bytes_up(self, tensors: Mapping[str, torch.Size], number_bytes: int = 4) -> int:
        sizes = [shape.numel() for shape in tensors.values()]
        scopes = sizes if self.scope == "tensor" else [sum(sizes)]
        return sum(sparse_bytes(entries, self.share, number_bytes) for entries in scopes)


def sparse_bytes(entries: int, share: float, number_bytes: int) -> int:
    """Every entry that is left with its index, or all entries without any where that is shorter."""
    kept = entries - dropped_of(entries, share)
    return min(kept * (number_bytes + _INDEX_BYTES), entries * number_bytes)


def dropped_of(entries: int, share: float) -> int:
    """floor(share x entries), where 0.29 x 100 is 28.999999999999996 in floating point."""
    return math.floor(share * entries + 1e-9)


def drop_smallest(rows: Tensor, share: float) -> Tensor:
    """(T, P) with the floor(share * P) entries of least magnitude of each row set to zero; ties fall by position."""
    order = rows.abs().sort(dim=1, stable=True).indices[:, : dropped_of(rows.shape[1], share)]
    return rows.scatter(1, order, 0.0)
