"""A generator as the attacks use it: a network from latents and labels to samples, and what it was made from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

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
    classes: int  # that it can be asked for; 0 if it takes no notice of labels
    about: str  # what it was made from, in words
    seen: Tensor | None = None  # fingerprints of the samples it was made from; None if nobody knows
    size: tuple[int, int] | None = None  # that its pictures are averaged down to; None leaves them as they are

    def samples(self, latents: Tensor, labels: Tensor) -> Tensor:
        """(A, N, D) latents and (A, N) labels -> (A, N, *shape)."""
        made = self.net(latents.flatten(0, 1), labels.flatten())
        return self._sized(made, labels)

    def own_samples(self, weights: Mapping[str, Tensor], latents: Tensor, labels: Tensor) -> Tensor:
        """As `samples`, where each row A has weights of its own: name -> (A, *parameter)."""

        def one(mine: Mapping[str, Tensor], z: Tensor, label: Tensor) -> Tensor:
            made: Tensor = functional_call(self.net, dict(mine), (z, label))
            return made

        made: Tensor = vmap(one)(weights, latents, labels)
        return self._sized(made.flatten(0, 1), labels)

    def _sized(self, made: Tensor, labels: Tensor) -> Tensor:
        """(A x N, *shape) at the size that is wanted: (A, N, *shape)."""
        if self.size is not None:
            made = F.adaptive_avg_pool2d(made, self.size)
        return made.reshape(*labels.shape, *made.shape[1:])


def fitted(generator: Generator, data: DataSpec, what: str) -> Generator:
    """The generator for this kind of data, refused if it makes something else.

    Larger pictures are averaged down to the data's size, as GGL does.
    """
    if 0 < generator.classes < data.classes:
        raise BadInput(
            what,
            allowed=f"one for the {data.classes} classes of {data.name!r}",
            got=f"one for {generator.classes}",
            do=f"train one: leakgauge train generator --data {data.name}",
        )
    if generator.shape == data.shape:
        return generator
    pictures = len(data.shape) == len(generator.shape) == 3 and data.shape[0] == generator.shape[0]
    if not pictures or min(a - b for a, b in zip(generator.shape, data.shape, strict=True)) < 0:
        raise BadInput(
            what,
            allowed=f"one whose samples are {_words(data.shape)} or larger, as those of {data.name!r}",
            got=_words(generator.shape),
            do=f"train one: leakgauge train generator --data {data.name}",
        )
    return dataclasses.replace(generator, size=(data.shape[1], data.shape[2]))


def _words(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
