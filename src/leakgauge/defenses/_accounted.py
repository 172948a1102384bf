"""What every defence with an accounted promise is told: the noise it adds, and how often it does so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from leakgauge.defenses._accounting import ACCOUNTANTS, accounted
from leakgauge.fl.aggregation import mean_of_rounds
from leakgauge.settings import setting
from leakgauge.types import Defense, Guarantee, SharedUpdate


@dataclass(frozen=True)
class Accounted(Defense):
    """Clips to `norm` and adds noise `sigma` x `norm`; a sampling rate and a number of steps make a promise of it."""

    unit: ClassVar[str]  # to whom the promise is made: "sample" or "client"

    norm: float = setting(1.0, "C, the largest length that passes; 0 turns the defence off", low=0)
    sigma: float = setting(1.0, "standard deviation of the noise in units of C; 0 adds none", low=0)
    q: float = setting(
        0.0, "probability with which a step draws a given sample or client; 0: not said, nothing promised",
        low=0, high=1,
    )  # fmt: skip
    rounds: int = setting(0, "noised steps in the whole training; 0: not said, nothing promised", low=0)
    delta: float = setting(1e-5, "delta of the promise", above=0, high=0.5)
    accountant: str = setting("rdp", "our own bound, or Opacus' RDP or PRV (extra: privacy)", choices=ACCOUNTANTS)

    def combined(self, updates: Sequence[SharedUpdate]) -> SharedUpdate:
        return mean_of_rounds(updates)

    def guarantee(self) -> Guarantee | None:
        """None without clipping, noise, a sampling rate or a number of steps."""
        sigma = self.sigma if self.norm else 0.0
        return accounted(
            self.unit, sigma=sigma, q=self.q, rounds=self.rounds, delta=self.delta, accountant=self.accountant
        )
