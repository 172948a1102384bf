"""ResNet-18 and ResNet-34 with the ImageNet stem; names and shapes as torchvision's, so its checkpoints load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from leakgauge.models._base import ModelSpec, named, normalize_setting
from leakgauge.models._blocks import stage
from leakgauge.models._layers import GlobalAveragePool, activation, enlarge_setting, enlarged, init_kaiming_convs
from leakgauge.models._shapes import image_shape
from leakgauge.settings import setting
from leakgauge.types import DataSpec


@dataclass(frozen=True)
class _ResNetImageNet(ModelSpec):
    """Conv k7 s2 + BN + ReLU, maxpool 3 s2, stages 64, 128, 256, 512, average, Linear.

    It shrinks images 32-fold, hence the smallest size. At 32 px the last map is one pixel, so BatchNorm in
    train mode needs more than one sample there. With `enlarge=224` smaller pictures are enlarged inside the model.
    """

    blocks: ClassVar[tuple[int, int, int, int]]  # per stage

    normalize: str = normalize_setting("auto")
    width: int = setting(64, "channels of the first stage; each further stage doubles them", low=1)
    enlarge: int = enlarge_setting()

    def layers(self, data: DataSpec) -> nn.Sequential:
        channels, height, width = image_shape(self.name, data, smallest=1 if self.enlarge >= 32 else 32)
        w, act, blocks = self.width, self.activation, self.blocks
        return named(
            *enlarged(height, width, self.enlarge),
            ("conv1", nn.Conv2d(channels, w, 7, 2, padding=3, bias=False)),
            ("bn1", nn.BatchNorm2d(w)),
            ("act1", activation(act)),
            ("maxpool", nn.MaxPool2d(3, 2, padding=1)),
            ("layer1", stage(w, w, blocks[0], 1, act)),  # (N, w, H/4, W/4)
            ("layer2", stage(w, 2 * w, blocks[1], 2, act)),
            ("layer3", stage(2 * w, 4 * w, blocks[2], 2, act)),
            ("layer4", stage(4 * w, 8 * w, blocks[3], 2, act)),  # (N, 8w, H/32, W/32)
            ("avgpool", GlobalAveragePool()),
            ("fc", nn.Linear(8 * w, data.classes)),
        )

    def init_default(self, model: nn.Sequential) -> None:
        init_kaiming_convs(model, "fan_out")


@dataclass(frozen=True)
class ResNet18(_ResNetImageNet):
    """Two blocks a stage."""

    name: ClassVar[str] = "resnet18"
    summary: ClassVar[str] = "ImageNet ResNet-18, from 32 px"
    paper: ClassVar[str] = "He et al. 2016; a target of FedKL"
    blocks: ClassVar[tuple[int, int, int, int]] = (2, 2, 2, 2)


@dataclass(frozen=True)
class ResNet34(_ResNetImageNet):
    """Three, four, six and three blocks."""

    name: ClassVar[str] = "resnet34"
    summary: ClassVar[str] = "ImageNet ResNet-34, from 32 px"
    paper: ClassVar[str] = "He et al. 2016; a target of FedKL"
    blocks: ClassVar[tuple[int, int, int, int]] = (3, 4, 6, 3)
