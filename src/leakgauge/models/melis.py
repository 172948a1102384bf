"""The convolutional network of the property-inference study."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from leakgauge.models._base import ModelSpec, named
from leakgauge.models._layers import activation
from leakgauge.models._shapes import image_shape
from leakgauge.settings import setting
from leakgauge.types import DataSpec

_WIDTHS = (1, 2, 4)  # in units of `width`


@dataclass(frozen=True)
class CNNMelis(ModelSpec):
    """M14: 3 x [Conv k3 without padding, ReLU, maxpool2], flatten, Linear 256, ReLU, Linear.

    The study feeds it faces of 62 x 47 pixels; any picture from 22 pixels a side fits.
    """

    name: ClassVar[str] = "cnn-melis"
    summary: ClassVar[str] = "three convolutions with max-pooling and a hidden layer, from 22 px"
    paper: ClassVar[str] = "Melis et al. 2019 (property inference)"

    width: int = setting(32, "channels of the first convolution; the last has four times as many", low=1)
    hidden: int = setting(256, "units of the hidden layer", low=1)

    def layers(self, data: DataSpec) -> nn.Sequential:
        channels, height, width = image_shape(self.name, data, smallest=22)
        layers: list[tuple[str, nn.Module]] = []
        for index, factor in enumerate(_WIDTHS, start=1):
            out = factor * self.width
            layers.append((f"conv{index}", nn.Conv2d(channels, out, 3)))
            layers.append((f"act{index}", activation(self.activation)))
            layers.append((f"pool{index}", nn.MaxPool2d(2)))
            channels, height, width = out, (height - 2) // 2, (width - 2) // 2
        return named(
            *layers,
            ("flatten", nn.Flatten()),
            ("fc1", nn.Linear(channels * height * width, self.hidden)),
            ("act4", activation(self.activation)),
            ("fc2", nn.Linear(self.hidden, data.classes)),
        )
