"""One hidden layer, for tables and images alike: its first layer gives the input away exactly."""

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
class MLP(ModelSpec):
    """Flatten, Linear(d -> hidden), activation, Linear(hidden -> C)."""

    name: ClassVar[str] = "mlp"
    summary: ClassVar[str] = "one hidden layer, for tables and images"
    paper: ClassVar[str] = "Aono et al. 2017 (the set-up of the analytic attack)"

    hidden: int = setting(128, "units of the hidden layer", low=1)

    def layers(self, data: DataSpec) -> nn.Sequential:
        return named(
            ("flatten", nn.Flatten()),  # (N, d)
            ("fc1", nn.Linear(math.prod(data.shape), self.hidden)),
            ("act1", activation(self.activation)),
            ("fc2", nn.Linear(self.hidden, data.classes)),
        )
