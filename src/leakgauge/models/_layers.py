"""Small layers and initialisations that several models share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

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


def activation(name: str) -> nn.Module:
    """A fresh activation layer. Never in place: gradient matching differentiates twice through it."""
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


class GlobalAveragePool(nn.Module):
    """(N, C, H, W) -> (N, C). A plain mean: cheaper to differentiate twice than adaptive pooling."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((-2, -1))


def init_uniform(model: nn.Module) -> None:
    """Every parameter, BatchNorm's included, from U(-0.5, 0.5): the rule of DLG, CPL and GRNN."""
    for parameter in model.parameters():
        nn.init.uniform_(parameter, -0.5, 0.5)


def init_kaiming_convs(model: nn.Module, mode: Literal["fan_in", "fan_out"]) -> None:
    """He et al.'s normal rule on the convolutions."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode=mode, nonlinearity="relu")
