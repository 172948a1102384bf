"""VGG16 with BatchNorm behind every convolution: FedKL's deepest target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from leakgauge.models._base import ModelSpec, named, normalize_setting
from leakgauge.models._layers import activation, enlarge_setting, enlarged, init_kaiming_convs
from leakgauge.models._shapes import image_shape
from leakgauge.settings import setting
from leakgauge.types import DataSpec

_STAGES = ((1, 2), (2, 2), (4, 3), (8, 3), (8, 3))  # (channels in units of `width`, convolutions)


@dataclass(frozen=True)
class VGG16BN(ModelSpec):
    """13 x [Conv k3 p1, BatchNorm, ReLU] with 2x2 max-pooling after each stage, then 4096-4096-C.

    Zero padding and biases as in the published network D with BatchNorm. Two departures: the features go into fc1 as
    they are (at 224 px that is no difference), and there is no dropout, which the defence of that name puts in.
    """

    name: ClassVar[str] = "vgg16-bn"
    summary: ClassVar[str] = "VGG16 with BatchNorm, from 32 px"
    paper: ClassVar[str] = "Simonyan and Zisserman 2015; a target of FedKL"

    normalize: str = normalize_setting("auto")
    width: int = setting(64, "channels of the first stage; the last has eight times as many", low=1)
    hidden: int = setting(4096, "units of the two hidden dense layers", low=1)
    enlarge: int = enlarge_setting()

    def layers(self, data: DataSpec) -> nn.Sequential:
        channels, height, width = image_shape(self.name, data, smallest=1 if self.enlarge >= 32 else 32)
        layers = enlarged(height, width, self.enlarge)
        if layers:
            height = width = self.enlarge
        for block, (factor, convs) in enumerate(_STAGES, start=1):
            for index in range(1, convs + 1):
                out = factor * self.width
                layers.append((f"conv{block}_{index}", nn.Conv2d(channels, out, 3, padding=1)))
                layers.append((f"bn{block}_{index}", nn.BatchNorm2d(out)))
                layers.append((f"act{block}_{index}", activation(self.activation)))
                channels = out
            layers.append((f"pool{block}", nn.MaxPool2d(2)))
        features = channels * (height // 32) * (width // 32)  # five halvings
        return named(
            *layers,
            ("flatten", nn.Flatten()),
            ("fc1", nn.Linear(features, self.hidden)),
            ("act_fc1", activation(self.activation)),
            ("fc2", nn.Linear(self.hidden, self.hidden)),
            ("act_fc2", activation(self.activation)),
            ("fc3", nn.Linear(self.hidden, data.classes)),
        )

    def init_default(self, model: nn.Sequential) -> None:
        init_kaiming_convs(model, "fan_out")
