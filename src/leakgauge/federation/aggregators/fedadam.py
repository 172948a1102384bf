"""FedAdam: the mean update is taken for a gradient, and the server follows it with Adam.

Reddi et al., ICLR 2021, Algorithm 2: m <- b1 m + (1 - b1) d, v <- b2 v + (1 - b2) d^2, step lr m / (sqrt(v) + tau), no
bias correction, v starting at tau^2. A federation of gradients steps along their negative. Running statistics are
averaged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.federation.aggregators.aggregator import Aggregator
from leakgauge.settings import setting
from leakgauge.types import SharedUpdate


@dataclass(frozen=True)
class FedAdam(Aggregator):
    """Reddi et al. 2021.

    Example: `leakgauge train --aggregator fedadam:lr=0.03`
    """

    name: ClassVar[str] = "fedadam"
    summary: ClassVar[str] = "the server follows the mean update with Adam"
    paper: ClassVar[str] = "Reddi et al. 2021, adaptive federated optimization"
    remembers: ClassVar[bool] = True

    lr: float = setting(0.01, "the server's learning rate, instead of server_lr", above=0)
    beta1: float = setting(0.9, "share of the direction that is kept from round to round", low=0, high=0.9999)
    beta2: float = setting(0.99, "share of the squares that is kept from round to round", low=0, high=0.9999)
    tau: float = setting(1e-3, "entries that move less than this are not sped up", above=0)
    validation: float = setting(
        0.0,
        "share of a client's samples it does not train on, as fedboosting keeps back: for a fair comparison",
        low=0,
        high=0.5,
    )

    def step(self, mean: SharedUpdate, memory: Mapping[str, Tensor]) -> tuple[SharedUpdate, dict[str, Tensor]]:
        sign = -1.0 if mean.kind == "gradient" else 1.0
        kept: dict[str, Tensor] = {}
        moved: dict[str, Tensor] = {}
        for name, tensor in mean.tensors.items():
            along = sign * tensor.detach()
            m = memory.get(f"m/{name}", torch.zeros_like(along))
            v = memory.get(f"v/{name}", torch.full_like(along, self.tau**2))
            m = self.beta1 * m + (1 - self.beta1) * along
            v = self.beta2 * v + (1 - self.beta2) * along**2
            kept |= {f"m/{name}": m, f"v/{name}": v}
            moved[name] = self.lr * m / (v.sqrt() + self.tau)
        return replace(mean, kind="weight_delta", tensors=moved), kept
