"""Two readings of LeNet-5: GRNN's with max-pooling, MKOR's with average pooling and replicate padding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from leakgauge.models._base import ModelSpec, activation_setting, init_setting, named
from leakgauge.models._layers import Enlarge, activation
from leakgauge.models._shapes import conv_out, image_shape
from leakgauge.settings import setting
from leakgauge.types import DataSpec


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
        front: list[tuple[str, nn.Module]] = []
        if channels == 1 or size != (height, width):
            front.append(("to_rgb32", ToRgb32(height, width)))
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
        if self.halving == "stride":
            conv1 = nn.Conv2d(channels, 6, 5, 2, padding=2, padding_mode="replicate")
            return named(*_lenet5(self.activation, conv1, None, (height, width), data.classes))
        conv1 = nn.Conv2d(channels, 6, 5, padding=2, padding_mode="replicate")
        return named(*_lenet5(self.activation, conv1, nn.AvgPool2d, (height, width), data.classes))


class ToRgb32(Enlarge):
    """(N, C, H, W) -> (N, 3 if C is 1 else C, at least 32, at least 32), without parameters."""

    def __init__(self, height: int, width: int) -> None:
        super().__init__((height, width), (max(height, 32), max(width, 32)))

    def forward(self, x: Tensor) -> Tensor:
        x = super().forward(x)  # (N, C, H', W')
        return x.expand(-1, 3, -1, -1) if x.shape[1] == 1 else x


def _lenet5(
    act: str, conv1: nn.Conv2d, pool: type[nn.Module] | None, size: tuple[int, int], classes: int
) -> list[tuple[str, nn.Module]]:
    """Without `pool` the convolutions have stride 2."""
    padding, stride = int(conv1.padding[0]), 2 if pool is None else 1
    if pool is None:
        height, width = (conv_out(conv_out(side, 5, 2, padding), 5, 2) for side in size)
    else:
        # conv k5, halve, conv k5 p0, halve: 32 -> 28 -> 14 -> 10 -> 5
        height, width = (conv_out(conv_out(side, 5, 1, padding) // 2, 5) // 2 for side in size)
    return [
        ("conv1", conv1),
        ("act1", activation(act)),
        *([] if pool is None else [("pool1", pool(2))]),
        ("conv2", nn.Conv2d(6, 16, 5, stride)),
        ("act2", activation(act)),
        *([] if pool is None else [("pool2", pool(2))]),
        ("flatten", nn.Flatten()),
        ("fc1", nn.Linear(16 * height * width, 120)),
        ("act3", activation(act)),
        ("fc2", nn.Linear(120, 84)),
        ("act4", activation(act)),
        ("fc3", nn.Linear(84, classes)),
    ]
