"""The networks of the R-GAP paper: six convolutions without biases, and a variant that hides its input by its ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from leakgauge.models._base import ModelSpec, activation_setting, named
from leakgauge.models._layers import activation
from leakgauge.models._shapes import conv_out, image_shape
from leakgauge.settings import setting
from leakgauge.types import DataSpec

# (channels out, kernel, stride, padding) of each convolution
_CNN6 = ((12, 4, 2, 2), (36, 3, 2, 1), (36, 3, 1, 1), (36, 3, 1, 1), (64, 3, 2, 1), (128, 3, 1, 1))
_CNN6D = ((12, 4, 2, 2), (20, 3, 2, 1), *_CNN6[2:])


def _bias_setting() -> Any:
    return setting(False, "a bias in the dense layer, as in the copy of the breaching library; the paper has none")


def _slope_setting() -> Any:
    return setting(0.2, "slope of activation=leaky_relu below zero", low=0)


@dataclass(frozen=True)
class CNN6(ModelSpec):
    """M8: 6 x [Conv without bias, LeakyReLU 0.2], flatten, Linear without bias. 32 px: (128, 5, 5) = 3200 features.

    The paper has one logit and the logistic loss; here there is one logit per class.
    """

    name: ClassVar[str] = "cnn6"
    summary: ClassVar[str] = "six bias-free convolutions with LeakyReLU, open to R-GAP layer by layer"
    paper: ClassVar[str] = "Zhu and Blaschko 2021 (R-GAP)"

    activation: str = activation_setting("leaky_relu")
    slope: float = _slope_setting()
    bias: bool = _bias_setting()

    def layers(self, data: DataSpec) -> nn.Sequential:
        return _convolutions(self, data, _CNN6)


@dataclass(frozen=True)
class CNN6d(ModelSpec):
    """M8: `cnn6` with 20 instead of 36 channels behind the second convolution, too few to determine what enters it."""

    name: ClassVar[str] = "cnn6-d"
    summary: ClassVar[str] = "cnn6 with a second convolution that is rank deficient on purpose"
    paper: ClassVar[str] = "Zhu and Blaschko 2021 (R-GAP)"

    activation: str = activation_setting("leaky_relu")
    slope: float = _slope_setting()
    bias: bool = _bias_setting()

    def layers(self, data: DataSpec) -> nn.Sequential:
        return _convolutions(self, data, _CNN6D)


def _convolutions(spec: CNN6 | CNN6d, data: DataSpec, shapes: tuple[tuple[int, int, int, int], ...]) -> nn.Sequential:
    channels, height, width = image_shape(spec.name, data)
    layers: list[tuple[str, nn.Module]] = []
    for index, (out, kernel, stride, padding) in enumerate(shapes, start=1):
        layers.append((f"conv{index}", nn.Conv2d(channels, out, kernel, stride, padding, bias=False)))
        layers.append((f"act{index}", activation(spec.activation, spec.slope)))
        height, width = conv_out(height, kernel, stride, padding), conv_out(width, kernel, stride, padding)
        channels = out
    fc = nn.Linear(channels * height * width, data.classes, bias=spec.bias)
    return named(*layers, ("flatten", nn.Flatten()), ("fc", fc))
