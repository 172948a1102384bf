"""What an accountant says about so many noised steps, as a cell."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from leakgauge.audit.run import Watch
from leakgauge.defenses.accounting import ORDERS, rdp
from leakgauge.defenses.dp_sgd import DPSGD
from leakgauge.lab.reproduce.recipe import Figures, Measurement


@dataclass(frozen=True, kw_only=True)
class Accounting(Measurement):
    """Epsilon of `steps` steps that each draw a unit with probability q; `plain` converts as the paper does."""

    unit: ClassVar[str] = "steps"

    q: float
    sigma: float
    steps: int
    delta: float = 1e-5
    accountant: str = "rdp"

    @property
    def size(self) -> int:
        return self.steps

    def resized(self, size: int) -> Self:  # noqa: ARG002
        """Nothing is saved by fewer steps, and they are another promise."""
        return self

    @property
    def title(self) -> str:
        return f"accounting by {self.accountant}: q = {self.q:g}, sigma = {self.sigma:g}, {self.steps:,} steps"

    def figures(self, device: str, data_root: Path | None, watch: Watch) -> Figures:  # noqa: ARG002
        if self.accountant == "plain":
            return {"epsilon": (plain_epsilon(self.q, self.sigma, self.steps, self.delta),)} if self.sigma else {}
        promise = DPSGD(
            sigma=self.sigma, q=self.q, rounds=self.steps, delta=self.delta, accountant=self.accountant
        ).guarantee()
        return {} if promise is None else {"epsilon": (promise.epsilon,)}


def plain_epsilon(q: float, sigma: float, steps: int, delta: float) -> float:
    """Mironov 2017, proposition 3: steps * RDP(a) + log(1 / delta) / (a - 1), the least over whole orders a."""
    return float(min(steps * rdp(q, sigma, a) + math.log(1 / delta) / (a - 1) for a in ORDERS))
