"""MKOR's VGG16: replicate padding, no dropout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from leakgauge.models._base import ModelSpec, named
from leakgauge.models._layers import activation, enlarge_setting, enlarged
from leakgauge.models._shapes import image_shape
from leakgauge.settings import setting
from leakgauge.types import DataSpec

_STAGES = ((1, 2), (2, 2), (4, 3), (8, 3), (8, 3))  # (channels in units of `width`, convolutions)


@dataclass(frozen=True)
class VGG16MKOR(ModelSpec):
    """M10: 13 x [Conv k3 p1 replicate, ReLU] with 2x2 max-pooling after each stage, then 4096-4096-C.
    The paper's modified network has `halving=stride`.

    Made for 224 px (25,088 features into fc1); other sizes from 32 px change fc1 only. With `enlarge=224` smaller
    pictures are enlarged inside the model, so that they are attacked and scored at their own size.
    """

    name: ClassVar[str] = "vgg16-mkor"
    summary: ClassVar[str] = "VGG16 with replicate padding, from 32 px"
    paper: ClassVar[str] = "Wang et al. 2023 (MKOR)"

    width: int = setting(64, "channels of the first stage; the last has eight times as many", low=1)
    hidden: int = setting(4096, "units of the two hidden dense layers", low=1)
    halving: str = setting(
        "max", "what halves the sides after each stage: max-pooling, or stride 2 in its last convolution",
        choices=("max", "stride"),
    )  # fmt: skip
    batchnorm: bool = setting(False, "BatchNorm behind each convolution")
    enlarge: int = enlarge_setting()

    def layers(self, data: DataSpec) -> nn.Sequential:
        channels, height, width = image_shape(self.name, data, smallest=1 if self.enlarge >= 32 else 32)
        layers = enlarged(height, width, self.enlarge)
        if layers:
            height = width = self.enlarge
        for block, (factor, convs) in enumerate(_STAGES, start=1):
            for index in range(1, convs + 1):
                out = factor * self.width
                stride = 2 if self.halving == "stride" and index == convs else 1
                conv = nn.Conv2d(channels, out, 3, stride, padding=1, padding_mode="replicate")
                layers.append((f"conv{block}_{index}", conv))
                if self.batchnorm:
                    layers.append((f"bn{block}_{index}", nn.BatchNorm2d(out)))
                layers.append((f"act{block}_{index}", activation(self.activation)))
                channels = out
            if self.halving == "max":
                layers.append((f"pool{block}", nn.MaxPool2d(2)))
        # Five halvings; pooling drops a last odd row, a stride keeps it.
        sides = [side // 32 if self.halving == "max" else -(-side // 32) for side in (height, width)]
        features = channels * sides[0] * sides[1]
        return named(
            *layers,
            ("flatten", nn.Flatten()),
            ("fc1", nn.Linear(features, self.hidden)),
            ("act_fc1", activation(self.activation)),
            ("fc2", nn.Linear(self.hidden, self.hidden)),
            ("act_fc2", activation(self.activation)),
            ("fc3", nn.Linear(self.hidden, data.classes)),
        )
