"""The sigmoid LeNets: DLG's and CPL's with one dense layer, GRNN's and MKOR's readings of LeNet-5."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from leakgauge.models._base import (
    ModelSpec,
    Pool,
    activation_setting,
    conv_out,
    convolutions,
    image_shape,
    init_setting,
)
from leakgauge.models.layers import Enlarge, Layers, activation, named
from leakgauge.settings import setting
from leakgauge.types import DataSpec

_POOLS = {"avg": nn.AvgPool2d, "max": nn.MaxPool2d}


@dataclass(frozen=True)
class LeNetDLG(ModelSpec):
    """M1: 3 x [Conv k5 p2, sigmoid], flatten, Linear. 32 px: (12, 8, 8) = 768 features; 28 px: 588."""

    name: ClassVar[str] = "lenet-dlg"
    summary: ClassVar[str] = "sigmoid LeNet with three convolutions, all parameters U(-0.5, 0.5)"
    paper: ClassVar[str] = "Zhu et al. 2019 (DLG); Zhao et al. 2020 (iDLG)"
    convolutions: ClassVar[int] = 3

    activation: str = activation_setting("sigmoid")
    init: str = init_setting("uniform")
    filters: int = setting(12, "channels of every convolution", low=1)
    pooling: str = setting(
        "none",
        "how pictures shrink: by convolutions of stride 2, or of stride 1 and a 2x2 pool behind the activation",
        choices=("none", "avg", "max"),
    )
    slope: float = setting(0.01, "slope of activation=leaky_relu below zero; the CPL notebooks have 0.5", low=0)

    def layers(self, data: DataSpec) -> nn.Sequential:
        pool = _POOLS.get(self.pooling)
        shape = image_shape(self.name, data, smallest=4 if pool else 1)  # two pools halve twice
        halving: tuple[int, Pool | None] = (1, (pool, 2)) if pool else (2, None)
        ends = (halving, halving, (1, None), (1, None))  # stride and pool of the k5 p2 convolutions
        rows = [(self.filters, 5, stride, 2, after) for stride, after in ends[: self.convolutions]]
        layers, features = convolutions(shape, rows, self.activation, slope=self.slope)
        return named(*layers, ("fc", nn.Linear(features, data.classes)))


@dataclass(frozen=True)
class LeNetCPL(LeNetDLG):
    """M2: `lenet-dlg` with one more stride-1 convolution before the dense layer.

    For 64 and 128 px the CPL code has filters=256 (65,536 and 262,144 features) and init=default.
    """

    name: ClassVar[str] = "lenet-cpl"
    summary: ClassVar[str] = "sigmoid LeNet with four convolutions, all parameters U(-0.5, 0.5)"
    paper: ClassVar[str] = "Wei et al. 2020 (CPL)"
    convolutions = 4


@dataclass(frozen=True)
class LeNet5GRNN(ModelSpec):
    """M3: 2 x [Conv k5, sigmoid, maxpool2], flatten, 400-120-84-C with sigmoids; made for 3x32x32.

    GRNN feeds MNIST as 3x32x32. Here a fixed first layer `to_rgb32` does that inside the model, so the
    attacked image keeps its own shape: one channel is copied to three, sides under 32 px are enlarged
    bilinearly. Larger images keep their size and widen fc1 instead.
    """

    name: ClassVar[str] = "lenet5-grnn"
    summary: ClassVar[str] = "sigmoid LeNet-5 with max-pooling, all parameters U(-0.5, 0.5)"
    paper: ClassVar[str] = "Ren et al. 2022 (GRNN)"

    activation: str = activation_setting("sigmoid")
    init: str = init_setting("uniform")

    def layers(self, data: DataSpec) -> nn.Sequential:
        channels, height, width = image_shape(self.name, data)
        size = max(height, 32), max(width, 32)
        changes = channels == 1 or size != (height, width)
        front: Layers = [("to_rgb32", ToRgb32(height, width))] if changes else []
        conv1 = nn.Conv2d(3 if channels == 1 else channels, 6, 5)
        return named(*front, *_lenet5(self.activation, conv1, nn.MaxPool2d, size, data.classes))


@dataclass(frozen=True)
class LeNet5MKOR(ModelSpec):
    """M10: `lenet5-grnn` with average pooling and a first convolution with p2 replicate; made for 1x28x28."""

    name: ClassVar[str] = "lenet5-mkor"
    summary: ClassVar[str] = "sigmoid LeNet-5 with average pooling, from 12 px"
    paper: ClassVar[str] = "Wang et al. 2023 (MKOR)"

    activation: str = activation_setting("sigmoid")
    halving: str = setting(
        "average",
        "what halves the sides: average pooling, or stride 2 (the paper's modified network)",
        choices=("average", "stride"),
    )

    def layers(self, data: DataSpec) -> nn.Sequential:
        channels, height, width = image_shape(self.name, data, smallest=12)
        stride, pool = (2, None) if self.halving == "stride" else (1, nn.AvgPool2d)
        conv1 = nn.Conv2d(channels, 6, 5, stride, padding=2, padding_mode="replicate")
        return named(*_lenet5(self.activation, conv1, pool, (height, width), data.classes))


class ToRgb32(Enlarge):
    """(N, C, H, W) -> (N, 3 if C is 1 else C, at least 32, at least 32), without parameters."""

    def __init__(self, height: int, width: int) -> None:
        super().__init__((height, width), (max(height, 32), max(width, 32)))

    def forward(self, x: Tensor) -> Tensor:
        x = super().forward(x)  # (N, C, H', W')
        return x.expand(-1, 3, -1, -1) if x.shape[1] == 1 else x


def _lenet5(act: str, conv1: nn.Conv2d, pool: type[nn.Module] | None, size: tuple[int, int], classes: int) -> Layers:
    """Without `pool` the convolutions have stride 2."""
    padding, (stride, halved) = int(conv1.padding[0]), (1, 2) if pool else (2, 1)
    # conv k5, halve, conv k5 p0, halve: 32 -> 28 -> 14 -> 10 -> 5
    height, width = (conv_out(conv_out(n, 5, stride, padding) // halved, 5, stride) // halved for n in size)
    return [
        ("conv1", conv1),
        ("act1", activation(act)),
        *([("pool1", pool(2))] if pool else []),
        ("conv2", nn.Conv2d(6, 16, 5, stride)),
        ("act2", activation(act)),
        *([("pool2", pool(2))] if pool else []),
        ("flatten", nn.Flatten()),
        ("fc1", nn.Linear(16 * height * width, 120)),
        ("act3", activation(act)),
        ("fc2", nn.Linear(120, 84)),
        ("act4", activation(act)),
        ("fc3", nn.Linear(84, classes)),
    ]
