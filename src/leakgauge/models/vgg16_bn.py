"""VGG16 with BatchNorm behind every convolution: FedKL's deepest target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from leakgauge.models._base import ModelSpec, normalize_setting
from leakgauge.models._layers import enlarge_setting, init_kaiming_convs
from leakgauge.models._vgg import vgg16
from leakgauge.settings import setting
from leakgauge.types import DataSpec


@dataclass(frozen=True)
class VGG16BN(ModelSpec):
    """13 x [Conv k3 p1, BatchNorm, ReLU] with 2x2 max-pooling after each stage, then 4096-4096-C.

    Zero padding and biases as in the published network D with BatchNorm. Two departures: the features go into fc1 as
    they are (at 224 px that is no difference), and there is no dropout, which the defense of that name puts in.
    """

    name: ClassVar[str] = "vgg16-bn"
    summary: ClassVar[str] = "VGG16 with BatchNorm, from 32 px"
    paper: ClassVar[str] = "Simonyan and Zisserman 2015; a target of FedKL"

    normalize: str = normalize_setting("auto")
    width: int = setting(64, "channels of the first stage; the last has eight times as many", low=1)
    hidden: int = setting(4096, "units of the two hidden dense layers", low=1)
    enlarge: int = enlarge_setting()

    def layers(self, data: DataSpec) -> nn.Sequential:
        return vgg16(self.name, data, self.width, self.hidden, self.enlarge, self.activation)

    def init_default(self, model: nn.Sequential) -> None:
        init_kaiming_convs(model, "fan_out")
