"""GRNN's ResNet-18: the usual blocks, a stem for small images, every ReLU a sigmoid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from leakgauge.models._base import ModelSpec, activation_setting, init_setting, named
from leakgauge.models._blocks import stage
from leakgauge.models._layers import GlobalAveragePool, activation
from leakgauge.models._shapes import image_shape
from leakgauge.settings import setting
from leakgauge.types import DataSpec


@dataclass(frozen=True)
class ResNet18GRNN(ModelSpec):
    """M4: Conv k3 + BN + sigmoid, stages 64, 128, 256, 512 of two blocks, global average, Linear.

    GRNN draws BatchNorm's gamma and beta from U(-0.5, 0.5) too, and runs it in train mode.
    """

    name: ClassVar[str] = "resnet18-grnn"
    summary: ClassVar[str] = "sigmoid ResNet-18 with a small-image stem, all parameters U(-0.5, 0.5)"
    paper: ClassVar[str] = "Ren et al. 2022 (GRNN)"

    activation: str = activation_setting("sigmoid")
    init: str = init_setting("uniform")
    width: int = setting(64, "channels of the first stage; each further stage doubles them", low=1)

    def layers(self, data: DataSpec) -> nn.Sequential:
        channels, _, _ = image_shape(self.name, data)
        w, act = self.width, self.activation
        return named(
            ("conv1", nn.Conv2d(channels, w, 3, padding=1, bias=False)),
            ("bn1", nn.BatchNorm2d(w)),
            ("act1", activation(act)),
            ("layer1", stage(w, w, 2, 1, act)),  # (N, w, H, W)
            ("layer2", stage(w, 2 * w, 2, 2, act)),
            ("layer3", stage(2 * w, 4 * w, 2, 2, act)),
            ("layer4", stage(4 * w, 8 * w, 2, 2, act)),  # (N, 8w, H/8, W/8)
            ("pool", GlobalAveragePool()),
            ("fc", nn.Linear(8 * w, data.classes)),
        )
