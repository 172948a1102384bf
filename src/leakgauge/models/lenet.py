"""The sigmoid LeNets of the first attacks: three convolutions (DLG) or four (CPL), then one dense layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from leakgauge.models._base import ModelSpec, activation_setting, init_setting, named
from leakgauge.models._layers import activation
from leakgauge.models._shapes import conv_out, image_shape
from leakgauge.settings import setting
from leakgauge.types import DataSpec

_STRIDES = (2, 2, 1, 1)  # of the k5 p2 convolutions


@dataclass(frozen=True)
class LeNetDLG(ModelSpec):
    """M1: 3 x [Conv k5 p2, sigmoid], flatten, Linear. 32 px: (12, 8, 8) = 768 features; 28 px: 588."""

    name: ClassVar[str] = "lenet-dlg"
    summary: ClassVar[str] = "sigmoid LeNet with three convolutions, all parameters U(-0.5, 0.5)"
    paper: ClassVar[str] = "Zhu et al. 2019 (DLG); Zhao et al. 2020 (iDLG)"

    activation: str = activation_setting("sigmoid")
    init: str = init_setting("uniform")
    filters: int = setting(12, "channels of every convolution", low=1)

    def layers(self, data: DataSpec) -> nn.Sequential:
        return _lenet(self.name, data, 3, self.filters, self.activation)


@dataclass(frozen=True)
class LeNetCPL(ModelSpec):
    """M2: `lenet-dlg` with one more stride-1 convolution before the dense layer.

    For 64 and 128 px the CPL code has filters=256 (65,536 and 262,144 features) and init=default.
    """

    name: ClassVar[str] = "lenet-cpl"
    summary: ClassVar[str] = "sigmoid LeNet with four convolutions, all parameters U(-0.5, 0.5)"
    paper: ClassVar[str] = "Wei et al. 2020 (CPL)"

    activation: str = activation_setting("sigmoid")
    init: str = init_setting("uniform")
    filters: int = setting(12, "channels of every convolution", low=1)

    def layers(self, data: DataSpec) -> nn.Sequential:
        return _lenet(self.name, data, 4, self.filters, self.activation)


def _lenet(name: str, data: DataSpec, convs: int, filters: int, act: str) -> nn.Sequential:
    channels, height, width = image_shape(name, data)
    layers: list[tuple[str, nn.Module]] = []
    for index, stride in enumerate(_STRIDES[:convs], start=1):
        layers.append((f"conv{index}", nn.Conv2d(channels, filters, 5, stride, padding=2)))
        layers.append((f"act{index}", activation(act)))
        channels = filters
        height, width = conv_out(height, 5, stride, 2), conv_out(width, 5, stride, 2)
    fc = nn.Linear(filters * height * width, data.classes)
    return named(*layers, ("flatten", nn.Flatten()), ("fc", fc))
