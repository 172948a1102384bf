"""VGG16: thirteen convolutions in five stages and three dense layers, in the two forms that papers attack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import nn

from leakgauge.models._base import ModelSpec, enlarge_setting, enlarged_shape, normalize_setting
from leakgauge.models.layers import activation, named
from leakgauge.settings import setting
from leakgauge.types import DataSpec

_STAGES = ((1, 2), (2, 2), (4, 3), (8, 3), (8, 3))  # (channels in units of `width`, convolutions)


@dataclass(frozen=True)
class _VGG16(ModelSpec):
    width: int = setting(64, "channels of the first stage; the last has eight times as many", low=1)
    hidden: int = setting(4096, "units of the two hidden dense layers", low=1)

    def network(
        self, data: DataSpec, enlarge: int, padding: Literal["zeros", "replicate"], batchnorm: bool, strided: bool
    ) -> nn.Sequential:
        """`strided` halves the sides in each stage's last convolution, else pooling does."""
        layers, (channels, *sides) = enlarged_shape(self.name, data, enlarge, smallest=32)
        for block, (factor, convs) in enumerate(_STAGES, start=1):
            for index in range(1, convs + 1):
                out = factor * self.width
                stride = 2 if strided and index == convs else 1
                conv = nn.Conv2d(channels, out, 3, stride, padding=1, padding_mode=padding)
                layers.append((f"conv{block}_{index}", conv))
                if batchnorm:
                    layers.append((f"bn{block}_{index}", nn.BatchNorm2d(out)))
                layers.append((f"act{block}_{index}", activation(self.activation)))
                channels = out
            if not strided:
                layers.append((f"pool{block}", nn.MaxPool2d(2)))
        # Five halvings; pooling drops a last odd row, a stride keeps it.
        height, width = (-(-side // 32) if strided else side // 32 for side in sides)
        return named(
            *layers,
            ("flatten", nn.Flatten()),
            ("fc1", nn.Linear(channels * height * width, self.hidden)),
            ("act_fc1", activation(self.activation)),
            ("fc2", nn.Linear(self.hidden, self.hidden)),
            ("act_fc2", activation(self.activation)),
            ("fc3", nn.Linear(self.hidden, data.classes)),
        )


@dataclass(frozen=True)
class VGG16MKOR(_VGG16):
    """M10: 13 x [Conv k3 p1 replicate, ReLU] with 2x2 max-pooling after each stage, then 4096-4096-C, no dropout.
    The paper's modified network has `halving=stride`.

    Made for 224 px (25,088 features into fc1); other sizes from 32 px change fc1 only. With `enlarge=224` smaller
    pictures are enlarged inside the model, so that they are attacked and scored at their own size.
    """

    name: ClassVar[str] = "vgg16-mkor"
    summary: ClassVar[str] = "VGG16 with replicate padding, from 32 px"
    paper: ClassVar[str] = "Wang et al. 2023 (MKOR)"

    halving: str = setting(
        "max",
        "what halves the sides after each stage: max-pooling, or stride 2 in its last convolution",
        choices=("max", "stride"),
    )
    batchnorm: bool = setting(False, "BatchNorm behind each convolution")
    enlarge: int = enlarge_setting()

    def layers(self, data: DataSpec) -> nn.Sequential:
        return self.network(data, self.enlarge, "replicate", self.batchnorm, strided=self.halving == "stride")


@dataclass(frozen=True)
class VGG16BN(_VGG16):
    """13 x [Conv k3 p1, BatchNorm, ReLU] with 2x2 max-pooling after each stage, then 4096-4096-C.

    Zero padding and biases as in the published network D with BatchNorm. Two departures: the features go into fc1 as
    they are (at 224 px that is no difference), and there is no dropout, which the defense of that name puts in.
    """

    name: ClassVar[str] = "vgg16-bn"
    summary: ClassVar[str] = "VGG16 with BatchNorm, from 32 px"
    paper: ClassVar[str] = "Simonyan and Zisserman 2015; a target of FedKL"
    he_fan = "fan_out"

    normalize: str = normalize_setting("auto")
    enlarge: int = enlarge_setting()

    def layers(self, data: DataSpec) -> nn.Sequential:
        return self.network(data, self.enlarge, "zeros", batchnorm=True, strided=False)
