"""ResNet20-4 of the Inverting Gradients paper: a CIFAR ResNet-20 that is four times as wide."""

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
class ResNet20x4(ModelSpec):
    """M7: Conv k3 + BN + ReLU, stages 64, 128, 256 of three blocks with 1x1 shortcuts, average, Linear."""

    name: ClassVar[str] = "resnet20-4"
    summary: ClassVar[str] = "ResNet-20 of four-fold width for small images"
    paper: ClassVar[str] = "Geiping et al. 2020 (Inverting Gradients)"

    normalize: str = normalize_setting("auto")
    width: int = setting(64, "channels of the first stage; each further stage doubles them", low=1)

    def layers(self, data: DataSpec) -> nn.Sequential:
        channels, _, _ = image_shape(self.name, data)
        w, act = self.width, self.activation
        return named(
            ("conv1", nn.Conv2d(channels, w, 3, padding=1, bias=False)),
            ("bn1", nn.BatchNorm2d(w)),
            ("act1", activation(act)),
            ("layer1", stage(w, w, 3, 1, act)),  # (N, w, H, W)
            ("layer2", stage(w, 2 * w, 3, 2, act)),
            ("layer3", stage(2 * w, 4 * w, 3, 2, act)),  # (N, 4w, H/4, W/4)
            ("pool", GlobalAveragePool()),
            ("fc", nn.Linear(4 * w, data.classes)),
        )

    def init_default(self, model: nn.Sequential) -> None:
        init_kaiming_convs(model, "fan_out")
