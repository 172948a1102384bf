"""Random mask: of every tensor only a random share of the entries is sent.

Konecny et al. 2016: each client draws its mask anew from a seed that the server knows, so no indices travel. Exactly
floor(share x entries) of a tensor are left out. The server divides its mean by the share that was sent, which makes it
unbiased (`aggregate`); a client sends the bare entries.

How to beat it: the mask is public, so only what was sent is compared, and it is exact. Smoothness fills the holes. The
label cannot be read where entries of the last layer are missing, so it is searched for with the picture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.defenses._families import PerTensor, smoothed, with_labels_searched
from leakgauge.defenses.prune import dropped_of
from leakgauge.engine.randomness import uniform
from leakgauge.matching.problem import Matching
from leakgauge.settings import setting
from leakgauge.types import Observation, SharedUpdate

_HOLE_FILLING = 3e-4  # weight of total variation; a third of it costs 3 dB


@dataclass(frozen=True)
class RandomMask(PerTensor):
    """Example: `--defense random-mask:share=0.9`"""

    name: ClassVar[str] = "random-mask"
    summary: ClassVar[str] = "send a random part of the entries"
    paper: ClassVar[str] = "Konecny et al. 2016"
    strength: ClassVar[str] = "share"
    leaves_zeros: ClassVar[bool] = True

    share: float = setting(0.9, "share of each tensor's entries that is left out, 0 to 1", low=0, high=1)

    def message(self, name: str, tensor: Tensor, seeds: Sequence[int]) -> Tensor:
        return tensor * self.mask(name, tensor, seeds)

    def mask(self, name: str, tensor: Tensor, seeds: Sequence[int]) -> Tensor:
        """1 where an entry of this tensor (T, *parameter) is sent, else 0."""
        order = uniform(seeds, f"random-mask/{name}", (tensor[0].numel(),)).argsort(1)
        sent = torch.zeros(order.shape).scatter(1, order[:, : self.sent(tensor[0].numel())], 1.0)
        return sent.to(tensor).view_as(tensor)

    def sent(self, entries: int) -> int:
        """How many of so many entries are sent."""
        return entries - dropped_of(entries, self.share)

    def aggregate(self, updates: SharedUpdate) -> SharedUpdate:
        """The mean, each tensor divided by the share of its entries that was sent."""
        return super().aggregate(updates).map(lambda _, t: t * (t.numel() / max(1, self.sent(t.numel()))))

    def informs_matching(self, problem: Matching, observation: Observation, way: str) -> Matching:  # noqa: ARG002
        """What was not sent leaves holes, among the labels' rows as well: labels are searched for with the inputs."""
        return with_labels_searched(smoothed(problem, _HOLE_FILLING).replace(match_nonzero=True))

    def combined(self, updates: Sequence[SharedUpdate]) -> SharedUpdate:
        """Each round shows other entries: the mean of those that were sent, zero where none ever was."""

        def shown(name: str, first: Tensor) -> Tensor:
            rounds = torch.stack([u.tensors[name] for u in updates])  # (R, T, *parameter)
            return (rounds.sum(0) / (rounds != 0).sum(0).clamp_min(1)).to(first)

        return updates[0].map(shown)

    def bytes_up(self, tensors: Mapping[str, torch.Size], number_bytes: int = 4) -> int:
        return number_bytes * sum(self.sent(shape.numel()) for shape in tensors.values())
