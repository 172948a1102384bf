"""The network of a trained generator: a convolutional decoder that is told the label, for pictures of any size.

A linear layer makes a small map of features, which is doubled in size until it covers the picture. Group
normalisation, because it treats every picture for itself: what one latent gives never depends on its neighbours.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_GROUPS = 4
_SMALLEST = 7  # side at which doubling may begin
WIDTH_STEP = _GROUPS  # the width must be a multiple of it


@dataclass(frozen=True)
class Architecture:
    """All that is needed to build the decoder anew; it is what a saved file says of itself."""

    shape: tuple[int, int, int]  # (C, H, W)
    classes: int
    latent: int = 64
    width: int = 32  # channels before the last layer; each halving of the side doubles them, up to four times

    @property
    def doublings(self) -> int:
        side, count = max(self.shape[1:]), 0
        while side > _SMALLEST and count < 5:
            side, count = -(-side // 2), count + 1
        return count

    @property
    def begin(self) -> tuple[int, int]:
        """Height and width of the first map: the picture's, halved and rounded up."""
        scale = 1 << self.doublings
        return -(-self.shape[1] // scale), -(-self.shape[2] // scale)

    def channels(self, doubled: int) -> int:
        """Channels after so many doublings."""
        return self.width * min(4, 1 << (self.doublings - doubled))

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"shape": list(self.shape)}


class Decoder(nn.Module):
    """Latents (M, D) and labels (M,) -> pictures (M, C, H, W) in [0, 1].

    A latent from N(0, 1) is first moved to where the codes of its label's pictures lie: `centre` and `stretch`, which
    training fills in.
    """

    def __init__(self, plan: Architecture) -> None:
        super().__init__()
        self.plan = plan
        height, width = plan.begin
        self.spread = nn.Linear(plan.latent + plan.classes, plan.channels(0) * height * width)
        self.blocks = nn.ModuleList()
        for doubled in range(1, plan.doublings + 1):
            before, after = plan.channels(doubled - 1), plan.channels(doubled)
            self.blocks.append(nn.Sequential(nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(_GROUPS, after)))
        self.paint = nn.Conv2d(plan.channels(plan.doublings), plan.shape[0], 3, padding=1)
        self.centre: Tensor  # (classes, D)
        self.stretch: Tensor  # (classes, D, D)
        self.register_buffer("centre", torch.zeros(plan.classes, plan.latent))
        self.register_buffer("stretch", torch.eye(plan.latent).repeat(plan.classes, 1, 1))

    def forward(self, latents: Tensor, labels: Tensor) -> Tensor:
        codes = self.centre[labels] + torch.einsum("md,mcd->mc", latents, self.stretch[labels])
        return self.draw(codes, labels)

    def draw(self, codes: Tensor, labels: Tensor) -> Tensor:
        """Pictures of codes as the encoder gives them."""
        told = F.one_hot(labels, self.plan.classes).to(codes)
        x = self.spread(torch.cat((codes, told), 1)).unflatten(1, (-1, *self.plan.begin))
        for block in self.blocks:
            x = F.silu(block(F.interpolate(x, scale_factor=2)))  # each pixel becomes four
        return torch.sigmoid(self.paint(x))[..., : self.plan.shape[1], : self.plan.shape[2]]


class Encoder(nn.Module):
    """The decoder's mirror, needed only while it is trained: pictures and labels -> mean and log-variance (M, D)."""

    def __init__(self, plan: Architecture) -> None:
        super().__init__()
        self.plan = plan
        channels = [plan.shape[0], *(plan.channels(d) for d in range(plan.doublings, 0, -1))]
        self.blocks = nn.ModuleList()
        for before, after in pairwise(channels):
            conv = nn.Conv2d(before, after, 3, stride=2, padding=1)
            self.blocks.append(nn.Sequential(conv, nn.GroupNorm(_GROUPS, after)))
        height, width = plan.begin
        self.gather = nn.Linear(channels[-1] * height * width + plan.classes, 2 * plan.latent)

    def forward(self, pictures: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        x = pictures
        for block in self.blocks:
            x = F.silu(block(x))
        told = F.one_hot(labels, self.plan.classes).to(pictures)
        mean, spread = self.gather(torch.cat((x.flatten(1), told), 1)).chunk(2, 1)
        return mean, spread.clamp(-12, 8)
