"""Layers that several models share, and how a network is put together out of named, seeded layers."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from leakgauge.engine.penalties import add_penalty

Layers = list[tuple[str, nn.Module]]  # in execution order, by name

_MAKERS: dict[str, Callable[[], nn.Module]] = {
    "sigmoid": nn.Sigmoid,
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "leaky_relu": nn.LeakyReLU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "softplus": nn.Softplus,
    "identity": nn.Identity,
}
ACTIVATIONS = list(_MAKERS)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw from `seed` inside, leave the caller's random stream as it was.

    Models are built on the CPU, so only its generator is seeded: `torch.manual_seed` reseeds the GPUs too.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def named(*layers: tuple[str, nn.Module]) -> nn.Sequential:
    """Layers in execution order under readable names: parameters become `conv1.weight`, `fc.bias`."""
    return nn.Sequential(OrderedDict(layers))


def activation(name: str, slope: float | None = None) -> nn.Module:
    """A fresh activation layer. Never in place: gradient matching differentiates twice through it.

    `slope` is what leaky_relu has below zero, PyTorch's 0.01 if it is left out; the others have none.
    """
    if name == "leaky_relu" and slope is not None:
        return nn.LeakyReLU(slope)
    return _MAKERS[name]()


class Normalize(nn.Module):
    """(x - mean) / std per channel. Images stay in [0, 1] outside the model.

    The constants are buffers that are not saved, so a checkpoint fits with and without this layer.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float], dims: int) -> None:
        super().__init__()
        shape = (-1, *[1] * (dims - 1))  # (C, 1, 1) for images, (features,) for tables
        self.register_buffer("mean", torch.tensor(mean).reshape(shape), persistent=False)
        self.register_buffer("std", torch.tensor(std).reshape(shape), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std


class Enlarge(nn.Module):
    """(N, C, H, W) -> (N, C, H', W'), bilinear, without parameters.

    Bilinear enlargement is linear in the image, so it is written as two matrix products: exact, twice
    differentiable under vmap, and deterministic on a GPU, which the library's resize is not.
    """

    rows: Tensor
    columns: Tensor

    def __init__(self, source: tuple[int, int], target: tuple[int, int]) -> None:
        super().__init__()
        self.register_buffer("rows", _enlarging(source[0], target[0]), persistent=False)  # (H', H)
        self.register_buffer("columns", _enlarging(source[1], target[1]), persistent=False)  # (W', W)

    def forward(self, x: Tensor) -> Tensor:
        return self.rows @ x @ self.columns.T


def _enlarging(size: int, target: int) -> Tensor:
    """(target, size): the linear interpolation of `size` points to `target`, as a matrix."""
    return F.interpolate(torch.eye(size)[None], target, mode="linear", align_corners=False)[0].T.contiguous()


class GlobalAveragePool(nn.Module):
    """(N, C, H, W) -> (N, C). A plain mean: cheaper to differentiate twice than adaptive pooling."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((-2, -1))


class MaskedLinear(nn.Linear):
    """A linear layer that multiplies what enters it by `mask` (features,): a dropout with a visible draw.

    It replaces `linear` and keeps its parameters, under the same names. The mask is a buffer that is not saved. It
    starts as ones: so the layer looks to everyone who does not know what was dropped. `scale`, which is public, is the
    value that kept features have in a drawn mask.
    """

    mask: Tensor

    def __init__(self, linear: nn.Linear, scale: float) -> None:
        has_bias = linear.bias is not None
        # On the meta device nothing is drawn: the parameters are replaced at once.
        super().__init__(linear.in_features, linear.out_features, has_bias, device="meta")
        self.weight, self.bias = linear.weight, linear.bias
        self.scale = scale
        self.register_buffer("mask", torch.ones_like(linear.weight[0]), persistent=False)
        self.train(linear.training)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x * self.mask, self.weight, self.bias)

    def visible_masks(self, gradient: Tensor) -> Tensor:
        """The masks (T, features) that this layer's weight gradients (T, out, features) show.

        A dropped feature leaves a column of exact zeros. A feature that was zero by itself does too, and taking it for
        dropped changes nothing: either way it did not enter. Where no column is zero, noise has covered the mask, and
        ones, what a mask is on average, are the best guess.
        """
        entered = (gradient != 0).any(1)
        return torch.where(entered.all(1, keepdim=True), 1.0, entered.to(gradient) * self.scale)


class VariationalBottleneck(nn.Module):
    """Features replaced by a draw around a code of theirs: z = mu + std * noise, K numbers, decoded by a linear layer.

    `noise` (K,) is a buffer that is not saved, visible like the mask of `MaskedLinear`. It is zero, its mean, in
    the model that everyone has; a client sets its own draw. `beta` weighs the divergence of N(mu, std^2) from N(0, 1),
    which the layer adds to the client's loss.
    """

    noise: Tensor

    def __init__(self, features: int, width: int, beta: float) -> None:
        super().__init__()
        self.statistics = nn.Linear(features, 2 * width)
        self.decode = nn.Linear(width, features)
        self.beta = beta
        self.register_buffer("noise", torch.zeros(width), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        mu, raw = self.statistics(x).chunk(2, -1)  # (N, K) each
        std = F.softplus(raw)
        if self.beta:
            add_penalty(self.beta * divergence(mu, std))
        decoded: Tensor = self.decode(mu + std * self.noise)
        return decoded


def divergence(mu: Tensor, std: Tensor) -> Tensor:
    """KL(N(mu, std^2) || N(0, 1)) in bits, summed over the K numbers (N, K) and averaged over the samples."""
    nats = -0.5 * (1 + 2 * std.log() - mu**2 - std**2).sum(-1)
    return nats.mean() / math.log(2)
