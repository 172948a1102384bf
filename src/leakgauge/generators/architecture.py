"""The network of a trained generator: a convolutional decoder that takes the label, for pictures of any size.

A linear layer makes a small feature map, which is doubled in size until it covers the picture. Group normalisation
treats every picture for itself, so what one latent gives never depends on its neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH_STEP = 4  # groups of the normalisation: the width must be a multiple of it
_SMALLEST = 7  # side at which doubling may begin
_DOUBLINGS = 5  # at most


@dataclass(frozen=True)
class Architecture:
    """All that is needed to build the decoder again; a saved file holds it."""

    shape: tuple[int, int, int]  # (C, H, W)
    classes: int
    latent: int = 64
    width: int = 32  # channels before the last layer; each halving of the side doubles them, up to four times

    @property
    def widths(self) -> list[int]:
        """Channels of the first map and after each doubling."""
        side, doublings = max(self.shape[1:]), 0
        while side > _SMALLEST and doublings < _DOUBLINGS:
            side, doublings = -(-side // 2), doublings + 1
        return [self.width * min(4, 1 << left) for left in range(doublings, -1, -1)]

    @property
    def begin(self) -> tuple[int, int]:
        """Height and width of the first map: the picture's, halved once per doubling and rounded up."""
        scale = 1 << (len(self.widths) - 1)
        return -(-self.shape[1] // scale), -(-self.shape[2] // scale)


def _blocks(widths: list[int], stride: int) -> nn.ModuleList:
    return nn.ModuleList(
        nn.Sequential(nn.Conv2d(before, after, 3, stride, padding=1), nn.GroupNorm(WIDTH_STEP, after))
        for before, after in pairwise(widths)
    )


class Decoder(nn.Module):
    """Latents (M, D) and labels (M,) -> pictures (M, C, H, W) in [0, 1].

    `centre` and `stretch`, which training fills in, first move a latent from N(0, 1) to where the codes of its label's
    pictures lie.
    """

    def __init__(self, plan: Architecture) -> None:
        super().__init__()
        self.plan, widths = plan, plan.widths
        height, width = plan.begin
        self.spread = nn.Linear(plan.latent + plan.classes, widths[0] * height * width)
        self.blocks = _blocks(widths, stride=1)
        self.paint = nn.Conv2d(widths[-1], plan.shape[0], 3, padding=1)
        self.centre: Tensor  # (classes, D)
        self.stretch: Tensor  # (classes, D, D)
        self.register_buffer("centre", torch.zeros(plan.classes, plan.latent))
        self.register_buffer("stretch", torch.eye(plan.latent).repeat(plan.classes, 1, 1))

    def forward(self, latents: Tensor, labels: Tensor) -> Tensor:
        codes = self.centre[labels] + torch.einsum("md,mcd->mc", latents, self.stretch[labels])
        return self.draw(codes, labels)

    def draw(self, codes: Tensor, labels: Tensor) -> Tensor:
        """Pictures of codes as the encoder gives them."""
        one_hot = F.one_hot(labels, self.plan.classes).to(codes)
        x = self.spread(torch.cat((codes, one_hot), 1)).unflatten(1, (-1, *self.plan.begin))
        for block in self.blocks:
            x = F.silu(block(F.interpolate(x, scale_factor=2)))  # each pixel becomes four
        return torch.sigmoid(self.paint(x))[..., : self.plan.shape[1], : self.plan.shape[2]]


class Encoder(nn.Module):
    """The decoder's mirror, used only in training: pictures and labels -> mean and log-variance (M, D)."""

    def __init__(self, plan: Architecture) -> None:
        super().__init__()
        self.plan = plan
        widths = [plan.shape[0], *plan.widths[:0:-1]]
        self.blocks = _blocks(widths, stride=2)
        height, width = plan.begin
        self.gather = nn.Linear(widths[-1] * height * width + plan.classes, 2 * plan.latent)

    def forward(self, pictures: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        x = pictures
        for block in self.blocks:
            x = F.silu(block(x))
        one_hot = F.one_hot(labels, self.plan.classes).to(pictures)
        mean, spread = self.gather(torch.cat((x.flatten(1), one_hot), 1)).chunk(2, 1)
        return mean, spread.clamp(-12, 8)
