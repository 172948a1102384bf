"""Deep gradient compression: only the largest entries are sent, the rest is kept and added to the next round's.

Lin et al., "Deep Gradient Compression", ICLR 2018. In each round u <- momentum u + g and v <- v + u; of each matrix or
kernel the largest entries of |v| are sent, and u = v = 0 there. Biases and other vectors are sent as they are.

Attacked is the message of round `rounds`. The model is held fixed over these rounds and the client has the same samples
in each, so g is the same: an attacker's best case, since in training both would move. The published code takes its
threshold from a sample of the entries and warms up over epochs; here the share is exact from the first round.

How to beat it: as with `prune` only what was sent is compared, and smoothness fills the holes. In the first round what
was sent is exact. Later an entry that waited for several rounds arrives as a multiple of g (with zero momentum k g
after k rounds), which one message does not show. A server that kept the earlier messages (`--local seen=`) saw when
each entry was last sent, and divides. After some rounds it has them all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.defenses._families import PerTensor
from leakgauge.defenses.prune import Prune, drop_smallest, sparse_bytes
from leakgauge.matching.problem import Matching
from leakgauge.settings import setting
from leakgauge.types import Observation, SharedUpdate


@dataclass(frozen=True)
class DGC(PerTensor):
    """Example: `--defense dgc:share=0.9,rounds=3`"""

    name: ClassVar[str] = "dgc"
    summary: ClassVar[str] = "send only the largest entries and keep the rest for later rounds"
    paper: ClassVar[str] = "Lin et al. 2018 (DGC); Wei et al. 2020 (CPL), Table 7"
    strength: ClassVar[str] = "share"
    leaves_zeros: ClassVar[bool] = True
    keeps: ClassVar[bool] = True

    share: float = setting(0.9, "share of a matrix's or kernel's entries that is kept back, 0 to 1", low=0, high=1)
    momentum: float = setting(0.9, "momentum of what is kept back", low=0, high=1)
    rounds: int = setting(1, "number of the round whose message is attacked; nothing has been kept before 1", low=1)

    def remembering(self, shared: SharedUpdate, memory: Mapping[str, Tensor]) -> tuple[SharedUpdate, dict[str, Tensor]]:
        sent: dict[str, Tensor] = {}
        kept: dict[str, Tensor] = {}
        for name, gradient in shared.tensors.items():
            if gradient.dim() <= 2:
                sent[name] = gradient
                continue
            u, v = (memory.get(f"{part}/{name}", torch.zeros_like(gradient)) for part in ("u", "v"))
            sent[name], kept[f"u/{name}"], kept[f"v/{name}"] = one_round(gradient, u, v, self.share, self.momentum)
        return dataclasses.replace(shared, tensors=sent), kept

    def message(self, name: str, tensor: Tensor, seeds: Sequence[int]) -> Tensor:  # noqa: ARG002
        """What the last round sends of one tensor."""
        if tensor.dim() <= 2:  # the trials axis and at most one more
            return tensor
        sent = velocity = kept = torch.zeros_like(tensor)
        for _ in range(self.rounds):
            sent, velocity, kept = one_round(tensor, velocity, kept, self.share, self.momentum)
        return sent

    def informs_matching(self, problem: Matching, observation: Observation, way: str) -> Matching:
        return Prune(share=self.share).informs_matching(problem, observation, way)

    def in_round(self, number: int) -> DGC:
        return dataclasses.replace(self, rounds=self.rounds + number)

    def combined(self, updates: Sequence[SharedUpdate]) -> SharedUpdate:
        """Messages of consecutive rounds added up, each entry divided by what it should be a multiple of.

        An entry is zero while nothing usable was sent of it: where the messages before the first one were not seen
        (`rounds` above 1), that is until its second time.
        """

        def gathered(name: str, first: Tensor) -> Tensor:
            if first.dim() <= 2:
                return first
            total, multiples = torch.zeros_like(first), torch.zeros_like(first)
            velocity = kept = torch.zeros_like(first)  # of an entry whose gradient is 1
            known = torch.full_like(first, float(self.rounds == 1))
            for update in updates:
                sent = update.tensors[name] != 0
                velocity = self.momentum * velocity + 1
                kept = kept + velocity
                total += known * update.tensors[name]
                multiples += known * sent * kept
                known = torch.maximum(known, sent.to(known))
                velocity, kept = velocity * ~sent, kept * ~sent
            return torch.where(multiples > 0, total / multiples.clamp_min(1), total)

        return updates[0].map(gathered)

    def bytes_up(self, tensors: Mapping[str, torch.Size], number_bytes: int = 4) -> int:
        return sum(
            sparse_bytes(shape.numel(), self.share, number_bytes) if len(shape) > 1 else number_bytes * shape.numel()
            for shape in tensors.values()
        )


def one_round(
    gradient: Tensor, velocity: Tensor, kept: Tensor, share: float, momentum: float
) -> tuple[Tensor, Tensor, Tensor]:
    """(sent, u, v) after one round with this gradient; all are (T, *parameter)."""
    velocity = momentum * velocity + gradient
    kept = kept + velocity
    sent = drop_smallest(kept.flatten(1), share).view_as(kept)
    stays = sent == 0
    return sent, velocity * stays, kept * stays
