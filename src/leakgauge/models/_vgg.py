"""VGG16: thirteen convolutions in five stages and three dense layers, in the two forms that papers attack."""

from __future__ import annotations

from typing import Literal

from torch import nn

from leakgauge.models._base import named
from leakgauge.models._layers import activation, enlarged
from leakgauge.models._shapes import image_shape
from leakgauge.types import DataSpec

_STAGES = ((1, 2), (2, 2), (4, 3), (8, 3), (8, 3))  # (channels in units of `width`, convolutions)


def vgg16(
    name: str,
    data: DataSpec,
    width: int,
    hidden: int,
    enlarge: int,
    rule: str,
    *,
    padding: Literal["zeros", "replicate"] = "zeros",
    batchnorm: bool = True,
    strided: bool = False,
) -> nn.Sequential:
    """`rule` is the activation; `strided` halves the sides in each stage's last convolution, else pooling does."""
    channels, height, breadth = image_shape(name, data, smallest=1 if enlarge >= 32 else 32)
    layers = enlarged(height, breadth, enlarge)
    if layers:
        height = breadth = enlarge
    for block, (factor, convs) in enumerate(_STAGES, start=1):
        for index in range(1, convs + 1):
            out = factor * width
            stride = 2 if strided and index == convs else 1
            conv = nn.Conv2d(channels, out, 3, stride, padding=1, padding_mode=padding)
            layers.append((f"conv{block}_{index}", conv))
            if batchnorm:
                layers.append((f"bn{block}_{index}", nn.BatchNorm2d(out)))
            layers.append((f"act{block}_{index}", activation(rule)))
            channels = out
        if not strided:
            layers.append((f"pool{block}", nn.MaxPool2d(2)))
    # Five halvings; pooling drops a last odd row, a stride keeps it.
    sides = [-(-side // 32) if strided else side // 32 for side in (height, breadth)]
    return named(
        *layers,
        ("flatten", nn.Flatten()),
        ("fc1", nn.Linear(channels * sides[0] * sides[1], hidden)),
        ("act_fc1", activation(rule)),
        ("fc2", nn.Linear(hidden, hidden)),
        ("act_fc2", activation(rule)),
        ("fc3", nn.Linear(hidden, data.classes)),
    )
