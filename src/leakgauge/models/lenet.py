"""The sigmoid LeNets of the first attacks: three convolutions (DLG) or four (CPL), then one dense layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from leakgauge.models._base import ModelSpec, activation_setting, init_setting, named
from leakgauge.models._layers import activation
from leakgauge.models._shapes import conv_out, image_shape
from leakgauge.settings import setting
from leakgauge.types import DataSpec

_STRIDES = (2, 2, 1, 1)  # of the k5 p2 convolutions
_POOLS = {"avg": nn.AvgPool2d, "max": nn.MaxPool2d}


def _pooling_setting() -> Any:
    return setting(
        "none",
        "how pictures shrink: by convolutions of stride 2, or of stride 1 and a 2x2 pool behind the activation",
        choices=("none", *_POOLS),
    )


def _slope_setting() -> Any:
    return setting(0.01, "slope of activation=leaky_relu below zero; the CPL notebooks have 0.5", low=0)


@dataclass(frozen=True)
class LeNetDLG(ModelSpec):
    """M1: 3 x [Conv k5 p2, sigmoid], flatten, Linear. 32 px: (12, 8, 8) = 768 features; 28 px: 588."""

    name: ClassVar[str] = "lenet-dlg"
    summary: ClassVar[str] = "sigmoid LeNet with three convolutions, all parameters U(-0.5, 0.5)"
    paper: ClassVar[str] = "Zhu et al. 2019 (DLG); Zhao et al. 2020 (iDLG)"

    activation: str = activation_setting("sigmoid")
    init: str = init_setting("uniform")
    filters: int = setting(12, "channels of every convolution", low=1)
    pooling: str = _pooling_setting()
    slope: float = _slope_setting()

    def layers(self, data: DataSpec) -> nn.Sequential:
        return _lenet(self, data, convs=3)


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
    pooling: str = _pooling_setting()
    slope: float = _slope_setting()

    def layers(self, data: DataSpec) -> nn.Sequential:
        return _lenet(self, data, convs=4)


def _lenet(spec: LeNetDLG | LeNetCPL, data: DataSpec, convs: int) -> nn.Sequential:
    pool = _POOLS.get(spec.pooling)
    channels, height, width = image_shape(spec.name, data, smallest=4 if pool else 1)  # two pools halve twice
    layers: list[tuple[str, nn.Module]] = []
    for index, stride in enumerate(_STRIDES[:convs], start=1):
        shrink = pool if stride == 2 else None
        layers.append((f"conv{index}", nn.Conv2d(channels, spec.filters, 5, 1 if shrink else stride, padding=2)))
        layers.append((f"act{index}", activation(spec.activation, spec.slope)))
        if shrink:
            layers.append((f"pool{index}", shrink(2)))
            height, width = height // 2, width // 2
        else:
            height, width = conv_out(height, 5, stride, 2), conv_out(width, 5, stride, 2)
        channels = spec.filters
    fc = nn.Linear(spec.filters * height * width, data.classes)
    return named(*layers, ("flatten", nn.Flatten()), ("fc", fc))
