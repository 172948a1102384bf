"""A small vision transformer: patches, a trained table of positions, attention blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from leakgauge.errors import BadInput, NotApplicable
from leakgauge.models._base import ModelSpec, image_shape
from leakgauge.models.layers import activation, named
from leakgauge.settings import setting
from leakgauge.types import DataSpec

_SPREAD = 0.02  # standard deviation of positions and class token at the start
_WIDER = 4  # times the embedding is the hidden layer of a block


@dataclass(frozen=True)
class ViT(ModelSpec):
    """Conv(patch, stride patch), plus positions, `depth` blocks of attention and MLP behind LayerNorm, mean, Linear.

    With `token` a class token is put in front of the patches, and the head reads it instead of the mean.
    """

    name: ClassVar[str] = "vit"
    summary: ClassVar[str] = "a small vision transformer with trained positions"
    paper: ClassVar[str] = "Dosovitskiy et al. 2021 (ViT), ICLR, much smaller"

    patch: int = setting(4, "pixels along a patch; both sides of the picture are multiples of it", low=1)
    embedding: int = setting(64, "numbers in a token; a multiple of heads", low=2)
    depth: int = setting(2, "blocks", low=1)
    heads: int = setting(4, "attention heads", low=1)
    token: bool = setting(False, "read a class token instead of the mean over the patches")

    def layers(self, data: DataSpec) -> nn.Sequential:
        channels, height, width = image_shape(self.name, data, smallest=self.patch)
        dim, patch = self.embedding, self.patch
        if height % patch or width % patch:
            raise NotApplicable(f"vit cuts {height}x{width} pictures into patches of {patch}, which leaves some over")
        if dim % self.heads:
            allowed = f"a multiple of heads={self.heads}"
            raise BadInput("vit: embedding", allowed=allowed, got=dim, do="change either")
        places = (height // patch) * (width // patch)
        blocks = [_Block(dim, self.heads, activation(self.activation)) for _ in range(self.depth)]
        return named(
            ("patches", nn.Conv2d(channels, dim, patch, patch)),  # (N, D, h, w)
            ("places", _Places(places, dim, self.token)),  # (N, P, D)
            *((f"block{n}", block) for n, block in enumerate(blocks, start=1)),
            ("norm", nn.LayerNorm(dim)),
            ("pool", _Pool(self.token)),  # (N, D)
            ("fc", nn.Linear(dim, data.classes)),
        )

    def init_default(self, model: nn.Sequential) -> None:
        for module in model.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=_SPREAD)


class _Places(nn.Module):
    """(N, D, h, w) -> (N, P, D), with a class token in front if there is one, and every place's own row added."""

    def __init__(self, places: int, embedding: int, token: bool) -> None:
        super().__init__()
        self.token = nn.Embedding(1, embedding) if token else None
        self.positions = nn.Embedding(places + token, embedding)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(2).transpose(1, 2)
        if self.token is not None:
            tokens = torch.cat((self.token.weight.expand(len(x), 1, -1), tokens), 1)
        return tokens + self.positions.weight


class _Block(nn.Module):
    """Attention, then two linear layers, each behind a LayerNorm and added to what came in: (N, P, D)."""

    def __init__(self, embedding: int, heads: int, act: nn.Module) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(embedding)
        self.qkv = nn.Linear(embedding, 3 * embedding)
        self.out = nn.Linear(embedding, embedding)
        self.norm2 = nn.LayerNorm(embedding)
        self.wide = nn.Linear(embedding, _WIDER * embedding)
        self.act = act
        self.narrow = nn.Linear(_WIDER * embedding, embedding)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self._attended(self.norm1(x))
        back: Tensor = x + self.narrow(self.act(self.wide(self.norm2(x))))
        return back

    def _attended(self, x: Tensor) -> Tensor:
        n, p, d = x.shape
        parts = self.qkv(x).view(n, p, 3, self.heads, d // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)  # (N, h, P, e)
        weights = torch.softmax(query @ key.transpose(-2, -1) * (d // self.heads) ** -0.5, -1)
        mixed: Tensor = self.out((weights @ value).transpose(1, 2).reshape(n, p, d))
        return mixed


class _Pool(nn.Module):
    """(N, P, D) -> (N, D): the class token, or the mean."""

    def __init__(self, token: bool) -> None:
        super().__init__()
        self.token = token

    def forward(self, x: Tensor) -> Tensor:
        return x[:, 0] if self.token else x.mean(1)
