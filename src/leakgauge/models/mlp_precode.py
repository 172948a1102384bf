"""The MLP of the PRECODE study: two hidden layers, in front of whose last layer the bottleneck is put."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from leakgauge.models._base import ModelSpec, named
from leakgauge.models._layers import activation
from leakgauge.settings import setting
from leakgauge.types import DataSpec


@dataclass(frozen=True)
class MLPPrecode(ModelSpec):
    """M9: flatten, 2 x [Linear, ReLU] of 1024 units, Linear. The bottleneck itself is the defense `precode`."""

    name: ClassVar[str] = "mlp-precode"
    summary: ClassVar[str] = "two hidden layers of 1024 units; the defense precode adds the bottleneck"
    paper: ClassVar[str] = "Scheliga et al. 2022 (PRECODE)"

    hidden: int = setting(1024, "units of each hidden layer", low=1)

    def layers(self, data: DataSpec) -> nn.Sequential:
        return named(
            ("flatten", nn.Flatten()),  # (N, d)
            ("fc1", nn.Linear(math.prod(data.shape), self.hidden)),
            ("act1", activation(self.activation)),
            ("fc2", nn.Linear(self.hidden, self.hidden)),
            ("act2", activation(self.activation)),
            ("fc3", nn.Linear(self.hidden, data.classes)),
        )
