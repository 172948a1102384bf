"""What every model of the zoo shares: its fields, seeded building, initialisation, normalisation inside the model."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

from torch import nn

from leakgauge.errors import BadInput, NotApplicable
from leakgauge.models.layers import ACTIVATIONS, Enlarge, Layers, Normalize, activation, seeded
from leakgauge.settings import Settings, setting
from leakgauge.types import DataSpec


def activation_setting(default: str) -> Any:
    return setting(default, "the non-linearity between the layers", choices=ACTIVATIONS)


def init_setting(default: str) -> Any:
    return setting(
        default,
        "initial values: the paper's or PyTorch's own rule, or U(-0.5, 0.5) for every parameter",
        choices=("default", "uniform"),
    )


def normalize_setting(default: str) -> Any:
    return setting(
        default,
        "first layer (x - mean) / std with the data set's constants: never, always, or if it has any",
        choices=("none", "data", "auto"),
    )


def enlarge_setting() -> Any:
    return setting(0, "pixels a side to which a fixed first layer enlarges; 0 for no such layer", low=0)


@dataclass(frozen=True)
class ModelSpec(Settings):
    """One architecture of the zoo. Fields are its hyper-parameters; data shape and seed arrive at the call.

    A subclass sets `name`, `summary` and `paper`, writes `layers`, and changes the fields' defaults where its
    paper does. Activations are never in place, so the models can be differentiated twice.
    """

    paper: ClassVar[str]
    he_fan: ClassVar[Literal["fan_in", "fan_out"] | None] = None  # He et al.'s normal rule on the convolutions, if any

    activation: str = activation_setting("relu")
    init: str = init_setting("default")
    normalize: str = normalize_setting("none")

    @final
    def build(self, data: DataSpec, seed: int) -> nn.Sequential:
        """The model for this kind of data, in eval mode; the same seed gives the same parameters."""
        normalize = self._normalize_layer(data)
        with seeded(seed):
            model = self.layers(data)
            if self.init == "uniform":  # every parameter, BatchNorm's included: the rule of DLG, CPL and GRNN
                for parameter in model.parameters():
                    nn.init.uniform_(parameter, -0.5, 0.5)
            else:
                self.init_default(model)
        if normalize is not None:
            # In front of the others rather than around them: parameter names are the same with and without.
            model = nn.Sequential(OrderedDict([("normalize", normalize), *model.named_children()]))
        return model.eval().requires_grad_(True)

    def layers(self, data: DataSpec) -> nn.Sequential:
        """The named layers in execution order; `NotApplicable` if the data's shape cannot work."""
        raise NotImplementedError  # abstract

    def init_default(self, model: nn.Sequential) -> None:
        """The paper's own initialisation; PyTorch's, which the layers already have, unless changed."""
        for module in model.modules():
            if self.he_fan is not None and isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode=self.he_fan, nonlinearity="relu")

    def _normalize_layer(self, data: DataSpec) -> Normalize | None:
        if self.normalize == "none" or (self.normalize == "auto" and not data.mean):
            return None
        channels = data.shape[0]
        if len(data.mean) != len(data.std) or len(data.mean) not in (1, channels):
            what, do = f"{self.name}: normalize=data", "use normalize=none, or give the data set its constants"
            allowed = f"used with data that has a mean and std for its {channels} channels"
            got = f"{len(data.mean)} means and {len(data.std)} stds for {data.name!r}"
            raise BadInput(what, allowed=allowed, got=got, do=do)
        return Normalize(data.mean, data.std, dims=len(data.shape))


def image_shape(model: str, data: DataSpec, smallest: int = 1) -> tuple[int, int, int]:
    """(C, H, W) of the data, or `NotApplicable` for tables and for images under `smallest` pixels a side."""
    if data.kind != "image" or len(data.shape) != 3:
        got = f"{data.name!r} has shape {data.shape}; model 'mlp' takes any shape"
        raise NotApplicable(f"model {model!r} needs images (C, H, W), but {got}")
    channels, height, width = data.shape
    if min(height, width) < smallest:
        got = f"{data.name!r} has {height}x{width}; 'lenet-dlg', 'resnet20' and 'mlp' take small images"
        raise NotApplicable(f"model {model!r} needs images of at least {smallest}x{smallest} pixels, but {got}")
    return channels, height, width


def enlarged_shape(model: str, data: DataSpec, side: int, smallest: int) -> tuple[Layers, tuple[int, int, int]]:
    """The first layer that enlarges smaller pictures to `side` pixels, if it is needed, and the shape behind it."""
    channels, height, width = image_shape(model, data, smallest=1 if side >= smallest else smallest)
    if side <= max(height, width):
        return [], (channels, height, width)
    return [("enlarge", Enlarge((height, width), (side, side)))], (channels, side, side)


def conv_out(size: int, kernel: int, stride: int = 1, padding: int = 0) -> int:
    """Pixels a side after a convolution or a pooling."""
    return (size + 2 * padding - kernel) // stride + 1


Pool = tuple[type[nn.Module], int]  # and its window
ConvRow = tuple[int, int, int, int, Pool | None]  # channels out, kernel, stride, padding, pool behind the activation


def convolutions(
    shape: tuple[int, int, int],
    rows: Iterable[ConvRow],
    act: str,
    *,
    slope: float | None = None,
    batchnorm: bool = False,
    bias: bool = True,
) -> tuple[Layers, int]:
    """[Conv, BatchNorm if asked for, activation, pool if any] for each row, flatten; and how many features come out."""
    channels, *sides = shape
    layers: Layers = []
    for index, (out, kernel, stride, padding, pool) in enumerate(rows, start=1):
        layers.append((f"conv{index}", nn.Conv2d(channels, out, kernel, stride, padding, bias=bias)))
        if batchnorm:
            layers.append((f"bn{index}", nn.BatchNorm2d(out)))
        layers.append((f"act{index}", activation(act, slope)))
        channels, sides = out, [conv_out(side, kernel, stride, padding) for side in sides]
        if pool is not None:
            kind, window = pool
            layers.append((f"pool{index}", kind(window)))
            sides = [side // window for side in sides]
    return [*layers, ("flatten", nn.Flatten())], channels * math.prod(sides)
