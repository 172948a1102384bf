"""ResNets: the CIFAR ones of He et al., a wide one, GRNN's with sigmoids, and those for ImageNet.

Names and shapes of ResNet-18 and ResNet-34 are torchvision's, so its checkpoints load.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from leakgauge.models._base import (
    ModelSpec,
    activation_setting,
    enlarge_setting,
    enlarged_shape,
    image_shape,
    init_setting,
    normalize_setting,
)
from leakgauge.models.layers import GlobalAveragePool, Layers, activation, named
from leakgauge.settings import setting
from leakgauge.types import DataSpec


class BasicBlock(nn.Module):
    """act(bn2(conv2(act(bn1(conv1(x))))) + downsample(x)), named as in torchvision.

    Where the shape changes, `downsample` is a 1x1 convolution with BatchNorm (shortcut "conv", He et al.'s
    option B) or has no parameters (shortcut "pad", option A). Each activation is a module of its own, so a
    hook sees it run once.
    """

    def __init__(self, before: int, after: int, stride: int, act: str, shortcut: str) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.act1 = activation(act)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.downsample: nn.Module
        if before == after and stride == 1:
            self.downsample = nn.Identity()
        elif shortcut == "pad":
            self.downsample = PadShortcut(after - before, stride)
        else:
            conv = nn.Conv2d(before, after, 1, stride, bias=False)
            self.downsample = nn.Sequential(conv, nn.BatchNorm2d(after))
        self.act2 = activation(act)

    def forward(self, x: Tensor) -> Tensor:
        out = self.act1(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out)) + self.downsample(x)
        result: Tensor = self.act2(out)
        return result


class PadShortcut(nn.Module):
    """Every `stride`-th pixel, and zeros for the `extra` channels: (N, C, H, W) -> (N, C + extra, H', W')."""

    def __init__(self, extra: int, stride: int) -> None:
        super().__init__()
        self.extra = extra
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x[..., :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.extra))


@dataclass(frozen=True)
class _ResNet(ModelSpec):
    """Conv k3 + BN + activation, stages of residual blocks, global average, Linear.

    Each stage after the first doubles the channels and halves the sides, in its first block.
    """

    blocks: ClassVar[tuple[int, ...]]  # per stage
    shortcut: ClassVar[str] = "conv"

    normalize: str = normalize_setting("auto")
    width: int = setting(64, "channels of the first stage; each further stage doubles them", low=1)

    def stem(self, data: DataSpec) -> Layers:
        """The layers before the first stage."""
        channels, _, _ = image_shape(self.name, data)
        return self.first(nn.Conv2d(channels, self.width, 3, padding=1, bias=False))

    def first(self, conv: nn.Conv2d) -> Layers:
        return [("conv1", conv), ("bn1", nn.BatchNorm2d(self.width)), ("act1", activation(self.activation))]

    def layers(self, data: DataSpec) -> nn.Sequential:
        layers, before = self.stem(data), self.width
        for number, blocks in enumerate(self.blocks):
            after, how = self.width << number, (self.activation, self.shortcut)
            first = BasicBlock(before, after, 2 if number else 1, *how)
            rest = [BasicBlock(after, after, 1, *how) for _ in range(blocks - 1)]
            layers.append((f"layer{number + 1}", nn.Sequential(first, *rest)))
            before = after
        return named(*layers, ("pool", GlobalAveragePool()), ("fc", nn.Linear(before, data.classes)))


@dataclass(frozen=True)
class ResNet20(_ResNet):
    """M16: three stages of three blocks from 16 channels, with option-A shortcuts.

    Option A pads the new channels with zeros; we append them, He et al. do not say where. Convolutions get
    their normal fan-in rule, the dense layer PyTorch's.
    """

    name: ClassVar[str] = "resnet20"
    summary: ClassVar[str] = "CIFAR ResNet-20, 0.27 million parameters"
    paper: ClassVar[str] = "He et al. 2016 (sec. 4.2); a target of FedKL"
    blocks = (3, 3, 3)
    shortcut = "pad"
    he_fan = "fan_in"

    width: int = setting(16, "channels of the first stage; each further stage doubles them", low=1)


@dataclass(frozen=True)
class ResNet32(ResNet20):
    """`resnet20` with five blocks a stage."""

    name: ClassVar[str] = "resnet32"
    summary: ClassVar[str] = "CIFAR ResNet-32, 0.46 million parameters"
    blocks = (5, 5, 5)


@dataclass(frozen=True)
class ResNet20x4(_ResNet):
    """M7: a CIFAR ResNet-20 that is four times as wide: stages 64, 128, 256 of three blocks with 1x1 shortcuts."""

    name: ClassVar[str] = "resnet20-4"
    summary: ClassVar[str] = "ResNet-20 of four-fold width for small images"
    paper: ClassVar[str] = "Geiping et al. 2020 (Inverting Gradients)"
    blocks = (3, 3, 3)
    he_fan = "fan_out"


@dataclass(frozen=True)
class ResNet18GRNN(_ResNet):
    """M4: a stem for small images, stages 64, 128, 256, 512 of two blocks, every ReLU a sigmoid.

    GRNN draws BatchNorm's gamma and beta from U(-0.5, 0.5) too, and runs it in train mode.
    """

    name: ClassVar[str] = "resnet18-grnn"
    summary: ClassVar[str] = "sigmoid ResNet-18 with a small-image stem, all parameters U(-0.5, 0.5)"
    paper: ClassVar[str] = "Ren et al. 2022 (GRNN)"
    blocks = (2, 2, 2, 2)

    activation: str = activation_setting("sigmoid")
    init: str = init_setting("uniform")
    normalize: str = normalize_setting("none")


@dataclass(frozen=True)
class ResNet18(_ResNet):
    """Conv k7 s2 + BN + ReLU, maxpool 3 s2, stages 64, 128, 256, 512 of two blocks, average, Linear.

    It shrinks images 32-fold, hence the smallest size. At 32 px the last map is one pixel, so BatchNorm in
    train mode needs more than one sample there. With `enlarge=224` smaller pictures are enlarged inside the model.
    """

    name: ClassVar[str] = "resnet18"
    summary: ClassVar[str] = "ImageNet ResNet-18, from 32 px"
    paper: ClassVar[str] = "He et al. 2016; a target of FedKL"
    blocks = (2, 2, 2, 2)
    he_fan = "fan_out"

    enlarge: int = enlarge_setting()

    def stem(self, data: DataSpec) -> Layers:
        front, (channels, _, _) = enlarged_shape(self.name, data, self.enlarge, smallest=32)
        conv = nn.Conv2d(channels, self.width, 7, 2, padding=3, bias=False)
        return [*front, *self.first(conv), ("maxpool", nn.MaxPool2d(3, 2, padding=1))]


@dataclass(frozen=True)
class ResNet34(ResNet18):
    """`resnet18` with stages of three, four, six and three blocks."""

    name: ClassVar[str] = "resnet34"
    summary: ClassVar[str] = "ImageNet ResNet-34, from 32 px"
    blocks = (3, 4, 6, 3)
