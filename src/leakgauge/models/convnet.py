"""Plain convolutional networks: of Inverting Gradients, R-GAP, MKOR's released code and property inference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from leakgauge.models._base import ModelSpec, activation_setting, convolutions, image_shape, normalize_setting
from leakgauge.models.layers import activation, named
from leakgauge.settings import setting
from leakgauge.types import DataSpec


@dataclass(frozen=True)
class ConvNet(ModelSpec):
    """M6: 8 x [Conv k3 p1, BN, ReLU], max-pooling by 3 after the sixth and the eighth, flatten, Linear.

    The paper's drawing has nine convolutions (`convnet9`); its released code drops one by naming two layers alike, and
    all of its published figures rest on that network of eight.
    """

    name: ClassVar[str] = "convnet"
    summary: ClassVar[str] = "eight convolutions with BatchNorm and ReLU, from 9 px"
    paper: ClassVar[str] = "Geiping et al. 2020 (Inverting Gradients)"
    widths: ClassVar[tuple[int, ...]] = (1, 2, 2, 4, 4, 4, 4, 4)  # of the convolutions, in units of `width`

    normalize: str = normalize_setting("auto")
    width: int = setting(64, "channels of the first convolution; the last has four times as many", low=1)

    def layers(self, data: DataSpec) -> nn.Sequential:
        shape, pooled = image_shape(self.name, data, smallest=9), (6, len(self.widths))  # 32 -> 10 -> 3
        pools = [(nn.MaxPool2d, 3) if index in pooled else None for index in range(1, len(self.widths) + 1)]
        rows = [(factor * self.width, 3, 1, 1, pool) for factor, pool in zip(self.widths, pools, strict=True)]
        layers, features = convolutions(shape, rows, self.activation, batchnorm=True)
        return named(*layers, ("fc", nn.Linear(features, data.classes)))


@dataclass(frozen=True)
class ConvNet9(ConvNet):
    """`convnet` with all nine convolutions, the last three between the two max-poolings: 3.7 M parameters.

    Drabent et al. 2022 call it "8-layer" and give its 3.7 M parameters; their code builds nine.
    """

    name: ClassVar[str] = "convnet9"
    summary: ClassVar[str] = "nine convolutions with BatchNorm and ReLU, from 9 px"
    paper: ClassVar[str] = "Drabent et al. 2022; Geiping et al. 2020"
    widths = (*ConvNet.widths, 4)


@dataclass(frozen=True)
class CNN6(ModelSpec):
    """M8: 6 x [Conv without bias, LeakyReLU 0.2], flatten, Linear without bias. 32 px: (128, 5, 5) = 3200 features.

    The paper has one logit and the logistic loss; here there is one logit per class.
    """

    name: ClassVar[str] = "cnn6"
    summary: ClassVar[str] = "six bias-free convolutions with LeakyReLU, open to R-GAP layer by layer"
    paper: ClassVar[str] = "Zhu and Blaschko 2021 (R-GAP)"
    second: ClassVar[int] = 36  # channels behind the second convolution

    activation: str = activation_setting("leaky_relu")
    slope: float = setting(0.2, "slope of activation=leaky_relu below zero", low=0)
    bias: bool = setting(
        False, "a bias in the dense layer, as in the copy of the breaching library; the paper has none"
    )

    def layers(self, data: DataSpec) -> nn.Sequential:
        shapes = ((12, 4, 2, 2), (self.second, 3, 2, 1), (36, 3, 1, 1), (36, 3, 1, 1), (64, 3, 2, 1), (128, 3, 1, 1))
        rows, act = [(*shape, None) for shape in shapes], self.activation
        layers, features = convolutions(image_shape(self.name, data), rows, act, slope=self.slope, bias=False)
        return named(*layers, ("fc", nn.Linear(features, data.classes, bias=self.bias)))


@dataclass(frozen=True)
class CNN6d(CNN6):
    """M8: `cnn6` with 20 instead of 36 channels behind the second convolution, too few to determine what enters it."""

    name: ClassVar[str] = "cnn6-d"
    summary: ClassVar[str] = "cnn6 with a second convolution that is rank deficient on purpose"
    second = 20


@dataclass(frozen=True)
class MKORModified(ModelSpec):
    """M10: two convolutions k5 p2 that keep the channels, no pooling, one dense layer, an activation behind each.

    MKOR's released code calls it modified: nothing in it hides the picture.
    """

    name: ClassVar[str] = "mkor-modified"
    summary: ClassVar[str] = "two convolutions without pooling and one dense layer"
    paper: ClassVar[str] = "Wang et al. 2023 (MKOR)"

    def layers(self, data: DataSpec) -> nn.Sequential:
        shape = image_shape(self.name, data)
        layers, features = convolutions(shape, [(shape[0], 5, 1, 2, None)] * 2, self.activation)
        return named(*layers, ("fc", nn.Linear(features, data.classes)), ("act3", activation(self.activation)))


@dataclass(frozen=True)
class CNNMelis(ModelSpec):
    """M14: 3 x [Conv k3 without padding, ReLU, maxpool2], flatten, Linear 256, ReLU, Linear.

    The study feeds it faces of 62 x 47 pixels; any picture from 22 pixels a side fits.
    """

    name: ClassVar[str] = "cnn-melis"
    summary: ClassVar[str] = "three convolutions with max-pooling and a hidden layer, from 22 px"
    paper: ClassVar[str] = "Melis et al. 2019 (property inference)"

    width: int = setting(32, "channels of the first convolution; the last has four times as many", low=1)
    hidden: int = setting(256, "units of the hidden layer", low=1)

    def layers(self, data: DataSpec) -> nn.Sequential:
        rows = [(factor * self.width, 3, 1, 0, (nn.MaxPool2d, 2)) for factor in (1, 2, 4)]
        layers, features = convolutions(image_shape(self.name, data, smallest=22), rows, self.activation)
        return named(
            *layers,
            ("fc1", nn.Linear(features, self.hidden)),
            ("act4", activation(self.activation)),
            ("fc2", nn.Linear(self.hidden, data.classes)),
        )
