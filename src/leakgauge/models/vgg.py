"""MKOR's VGG16: replicate padding, no dropout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from leakgauge.models._base import ModelSpec
from leakgauge.models._layers import enlarge_setting
from leakgauge.models._vgg import vgg16
from leakgauge.settings import setting
from leakgauge.types import DataSpec


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
        "max",
        "what halves the sides after each stage: max-pooling, or stride 2 in its last convolution",
        choices=("max", "stride"),
    )
    batchnorm: bool = setting(False, "BatchNorm behind each convolution")
    enlarge: int = enlarge_setting()

    def layers(self, data: DataSpec) -> nn.Sequential:
        return vgg16(
            self.name,
            data,
            self.width,
            self.hidden,
            self.enlarge,
            self.activation,
            padding="replicate",
            batchnorm=self.batchnorm,
            strided=self.halving == "stride",
        )
