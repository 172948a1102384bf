"""A generator as the attacks use it: a network from latents and labels to samples, and what it was made from."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, vmap

from leakgauge.errors import BadInput
from leakgauge.types import DataSpec


@dataclass(frozen=True, eq=False)
class Generator:
    """`net` maps latents (M, D), entries about N(0, 1), and labels (M,) to samples (M, *shape)."""

    net: nn.Module
    latent: int  # D
    shape: tuple[int, ...]  # of a sample as the network makes it
    classes: int  # that it can be asked for; 0 if it ignores labels
    about: str  # what it was made from, in words
    seen: Tensor | None = None  # fingerprints of the samples it was made from; None if nobody knows
    size: tuple[int, int] | None = None  # its pictures are averaged down to this; None leaves them as they are

    def samples(self, latents: Tensor, labels: Tensor) -> Tensor:
        """(A, N, D) latents and (A, N) labels -> (A, N, *shape)."""
        return self._sized(self.net(latents.flatten(0, 1), labels.flatten()), labels)

    def own_samples(self, weights: Mapping[str, Tensor], latents: Tensor, labels: Tensor) -> Tensor:
        """As `samples`, where each row A has weights of its own: name -> (A, *parameter)."""
        made: Tensor = vmap(lambda *row: functional_call(self.net, dict(row[0]), row[1:]))(weights, latents, labels)
        return self._sized(made.flatten(0, 1), labels)

    def _sized(self, made: Tensor, labels: Tensor) -> Tensor:
        """(A x N, *shape) -> (A, N, *shape) at the wanted size."""
        if self.size is not None:
            made = F.adaptive_avg_pool2d(made, self.size)
        return made.reshape(*labels.shape, *made.shape[1:])


def fitted(generator: Generator, data: DataSpec, what: str) -> Generator:
    """The generator for this kind of data, refused if it makes something else.

    Larger pictures are averaged down to the data's size, as GGL does.
    """
    train = f"train one: leakgauge train generator --data {data.name}"
    if 0 < generator.classes < data.classes:
        allowed = f"one for the {data.classes} classes of {data.name!r}"
        raise BadInput(what, allowed=allowed, got=f"one for {generator.classes}", do=train)
    if generator.shape == data.shape:
        return generator
    pictures = len(data.shape) == len(generator.shape) == 3 and data.shape[0] == generator.shape[0]
    if not pictures or min(a - b for a, b in zip(generator.shape, data.shape, strict=True)) < 0:
        wanted, got = ("x".join(map(str, shape)) for shape in (data.shape, generator.shape))
        allowed = f"one whose samples are {wanted} or larger, as those of {data.name!r}"
        raise BadInput(what, allowed=allowed, got=got, do=train)
    return dataclasses.replace(generator, size=(data.shape[1], data.shape[2]))


def fingerprints(samples: Tensor) -> Tensor:
    """(M, *shape) in [0, 1] -> (M,) int64: short hashes that show which samples a generator saw, without the samples.

    Values are rounded to bytes first, so precision does not matter.
    """
    rows = samples.flatten(1).mul(255).round().to(torch.uint8).cpu().numpy()
    hashes = [int.from_bytes(hashlib.sha256(row.tobytes()).digest()[:8], "little", signed=True) for row in rows]
    return torch.tensor(hashes, dtype=torch.int64)
