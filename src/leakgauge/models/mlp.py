"""Multilayer perceptrons, for tables and images alike: their first layer gives the input away exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from leakgauge.models._base import ModelSpec
from leakgauge.models.layers import Layers, activation, named
from leakgauge.settings import setting
from leakgauge.types import DataSpec


@dataclass(frozen=True)
class MLP(ModelSpec):
    """Flatten, Linear(d -> hidden), activation, Linear(hidden -> C)."""

    name: ClassVar[str] = "mlp"
    summary: ClassVar[str] = "one hidden layer, for tables and images"
    paper: ClassVar[str] = "Aono et al. 2017 (the set-up of the analytic attack)"
    depth: ClassVar[int] = 1  # hidden layers

    hidden: int = setting(128, "units of the hidden layer", low=1)

    def layers(self, data: DataSpec) -> nn.Sequential:
        layers: Layers = [("flatten", nn.Flatten())]  # (N, d)
        for number in range(1, self.depth + 1):
            before = math.prod(data.shape) if number == 1 else self.hidden
            layers += [(f"fc{number}", nn.Linear(before, self.hidden)), (f"act{number}", activation(self.activation))]
        return named(*layers, (f"fc{self.depth + 1}", nn.Linear(self.hidden, data.classes)))


@dataclass(frozen=True)
class MLPPrecode(MLP):
    """M9: flatten, 2 x [Linear, ReLU] of 1024 units, Linear. The bottleneck before the last layer is the defense."""

    name: ClassVar[str] = "mlp-precode"
    summary: ClassVar[str] = "two hidden layers of 1024 units; the defense precode adds the bottleneck"
    paper: ClassVar[str] = "Scheliga et al. 2022 (PRECODE)"
    depth = 2

    hidden: int = setting(1024, "units of each hidden layer", low=1)
