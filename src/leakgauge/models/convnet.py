"""The convolutional network of the Inverting Gradients paper, which others call ConvNet8."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from leakgauge.models._base import ModelSpec, named, normalize_setting
from leakgauge.models._layers import activation
from leakgauge.models._shapes import image_shape
from leakgauge.settings import setting
from leakgauge.types import DataSpec

_WIDTHS = (1, 2, 2, 4, 4, 4, 4, 4)  # in units of `width`
_POOL_AFTER = (6, 8)  # after which convolution a 3x3 max-pooling stands


@dataclass(frozen=True)
class ConvNet(ModelSpec):
    """M6: 8 x [Conv k3 p1, BN, ReLU], max-pooling by 3 after the sixth and the eighth, flatten, Linear.

    The paper's drawing has nine convolutions; its released code drops one by naming two layers alike, and all
    published figures rest on that network of eight.
    """

    name: ClassVar[str] = "convnet"
    summary: ClassVar[str] = "eight convolutions with BatchNorm and ReLU, from 9 px"
    paper: ClassVar[str] = "Geiping et al. 2020 (Inverting Gradients)"

    normalize: str = normalize_setting("auto")
    width: int = setting(64, "channels of the first convolution; the last has four times as many", low=1)

    def layers(self, data: DataSpec) -> nn.Sequential:
        channels, height, width = image_shape(self.name, data, smallest=9)
        layers: list[tuple[str, nn.Module]] = []
        for index, factor in enumerate(_WIDTHS, start=1):
            out = factor * self.width
            layers.append((f"conv{index}", nn.Conv2d(channels, out, 3, padding=1)))
            layers.append((f"bn{index}", nn.BatchNorm2d(out)))
            layers.append((f"act{index}", activation(self.activation)))
            if index in _POOL_AFTER:
                layers.append((f"pool{index}", nn.MaxPool2d(3)))
            channels = out
        features = channels * (height // 3 // 3) * (width // 3 // 3)  # 32 -> 10 -> 3
        return named(*layers, ("flatten", nn.Flatten()), ("fc", nn.Linear(features, data.classes)))
