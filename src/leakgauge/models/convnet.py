"""The convolutional network of the Inverting Gradients paper: eight convolutions as its code runs, nine as written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from leakgauge.models._base import ModelSpec, named, normalize_setting
from leakgauge.models._layers import activation
from leakgauge.models._shapes import image_shape
from leakgauge.settings import setting
from leakgauge.types import DataSpec

_EIGHT = (1, 2, 2, 4, 4, 4, 4, 4)  # widths of the convolutions, in units of `width`
_NINE = (*_EIGHT, 4)
_FIRST_POOL = 6  # the convolution before the first 3x3 max-pooling; the second one stands behind the last


@dataclass(frozen=True)
class ConvNet(ModelSpec):
    """M6: 8 x [Conv k3 p1, BN, ReLU], max-pooling by 3 after the sixth and the eighth, flatten, Linear.

    The paper's drawing has nine convolutions (`convnet9`); its released code drops one by naming two layers alike, and
    all of its published figures rest on that network of eight.
    """

    name: ClassVar[str] = "convnet"
    summary: ClassVar[str] = "eight convolutions with BatchNorm and ReLU, from 9 px"
    paper: ClassVar[str] = "Geiping et al. 2020 (Inverting Gradients)"

    normalize: str = normalize_setting("auto")
    width: int = setting(64, "channels of the first convolution; the last has four times as many", low=1)

    def layers(self, data: DataSpec) -> nn.Sequential:
        return _convnet(self, data, _EIGHT)


@dataclass(frozen=True)
class ConvNet9(ModelSpec):
    """`convnet` with all nine convolutions, the last three between the two max-poolings: 3.7 M parameters.

    Drabent et al. 2022 call it "8-layer" and give its 3.7 M parameters; their code builds nine.
    """

    name: ClassVar[str] = "convnet9"
    summary: ClassVar[str] = "nine convolutions with BatchNorm and ReLU, from 9 px"
    paper: ClassVar[str] = "Drabent et al. 2022; Geiping et al. 2020"

    normalize: str = normalize_setting("auto")
    width: int = setting(64, "channels of the first convolution; the last has four times as many", low=1)

    def layers(self, data: DataSpec) -> nn.Sequential:
        return _convnet(self, data, _NINE)


def _convnet(spec: ConvNet | ConvNet9, data: DataSpec, widths: tuple[int, ...]) -> nn.Sequential:
    channels, height, width = image_shape(spec.name, data, smallest=9)
    layers: list[tuple[str, nn.Module]] = []
    for index, factor in enumerate(widths, start=1):
        out = factor * spec.width
        layers.append((f"conv{index}", nn.Conv2d(channels, out, 3, padding=1)))
        layers.append((f"bn{index}", nn.BatchNorm2d(out)))
        layers.append((f"act{index}", activation(spec.activation)))
        if index in (_FIRST_POOL, len(widths)):
            layers.append((f"pool{index}", nn.MaxPool2d(3)))
        channels = out
    features = channels * (height // 3 // 3) * (width // 3 // 3)  # 32 -> 10 -> 3
    return named(*layers, ("flatten", nn.Flatten()), ("fc", nn.Linear(features, data.classes)))
