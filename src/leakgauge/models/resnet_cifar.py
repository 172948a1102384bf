"""The CIFAR ResNets of He et al.: 16, 32, 64 channels and shortcuts without parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from leakgauge.models._base import ModelSpec, named, normalize_setting
from leakgauge.models._blocks import stage
from leakgauge.models._layers import GlobalAveragePool, activation, init_kaiming_convs
from leakgauge.models._shapes import image_shape
from leakgauge.settings import setting
from leakgauge.types import DataSpec


@dataclass(frozen=True)
class _ResNetCifar(ModelSpec):
    """M16: Conv k3 + BN + ReLU, three stages with option-A shortcuts, global average, Linear.

    Option A pads the new channels with zeros; we append them, He et al. do not say where. Convolutions get
    their normal fan-in rule, the dense layer PyTorch's.
    """

    blocks: ClassVar[int]  # per stage; 6 * blocks + 2 layers in all
    paper: ClassVar[str] = "He et al. 2016 (sec. 4.2); a target of FedKL"

    normalize: str = normalize_setting("auto")
    width: int = setting(16, "channels of the first stage; each further stage doubles them", low=1)

    def layers(self, data: DataSpec) -> nn.Sequential:
        channels, _, _ = image_shape(self.name, data)
        w, act, blocks = self.width, self.activation, self.blocks
        return named(
            ("conv1", nn.Conv2d(channels, w, 3, padding=1, bias=False)),
            ("bn1", nn.BatchNorm2d(w)),
            ("act1", activation(act)),
            ("layer1", stage(w, w, blocks, 1, act, "pad")),  # (N, w, H, W)
            ("layer2", stage(w, 2 * w, blocks, 2, act, "pad")),
            ("layer3", stage(2 * w, 4 * w, blocks, 2, act, "pad")),  # (N, 4w, H/4, W/4)
            ("pool", GlobalAveragePool()),
            ("fc", nn.Linear(4 * w, data.classes)),
        )

    def init_default(self, model: nn.Sequential) -> None:
        init_kaiming_convs(model, "fan_in")


@dataclass(frozen=True)
class ResNet20(_ResNetCifar):
    """Three blocks a stage."""

    name: ClassVar[str] = "resnet20"
    summary: ClassVar[str] = "CIFAR ResNet-20, 0.27 million parameters"
    blocks: ClassVar[int] = 3


@dataclass(frozen=True)
class ResNet32(_ResNetCifar):
    """Five blocks a stage."""

    name: ClassVar[str] = "resnet32"
    summary: ClassVar[str] = "CIFAR ResNet-32, 0.46 million parameters"
    blocks: ClassVar[int] = 5
