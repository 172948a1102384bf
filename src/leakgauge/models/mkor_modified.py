"""The network that MKOR's released code calls modified: nothing in it hides the picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from leakgauge.models._base import ModelSpec, named
from leakgauge.models._layers import activation
from leakgauge.models._shapes import image_shape
from leakgauge.types import DataSpec


@dataclass(frozen=True)
class MKORModified(ModelSpec):
    """M10: two convolutions k5 p2 that keep the channels, no pooling, one dense layer, an activation behind each."""

    name: ClassVar[str] = "mkor-modified"
    summary: ClassVar[str] = "two convolutions without pooling and one dense layer"
    paper: ClassVar[str] = "Wang et al. 2023 (MKOR)"

    def layers(self, data: DataSpec) -> nn.Sequential:
        channels, height, width = image_shape(self.name, data)
        return named(
            ("conv1", nn.Conv2d(channels, channels, 5, padding=2)),
            ("act1", activation(self.activation)),
            ("conv2", nn.Conv2d(channels, channels, 5, padding=2)),
            ("act2", activation(self.activation)),
            ("flatten", nn.Flatten()),
            ("fc", nn.Linear(channels * height * width, data.classes)),
            ("act3", activation(self.activation)),
        )
