"""What every defense with an accounted promise is told: the noise it adds, and how often it does so."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from leakgauge.client.sums import mean_of_rounds
from leakgauge.defenses._accounting import ACCOUNTANTS, accounted
from leakgauge.defenses._clipping import KnownClipping
from leakgauge.defenses._reconstruction_bound import mu_of_steps
from leakgauge.settings import setting
from leakgauge.types import Guarantee, SharedUpdate

_DELTAS = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 1e-4, 1e-5, 1e-6, 1e-8)  # a large delta serves a kappa that is not small


@dataclass(frozen=True)
class Accounted(KnownClipping):
    """Clips to `norm` and adds noise `sigma` x `norm`; a sampling rate and a number of steps make a promise of it."""

    unit: ClassVar[str]  # to whom the promise is made: "sample" or "client"

    norm: float = setting(1.0, "C, the largest length that passes; 0 turns the defense off", low=0)
    sigma: float = setting(1.0, "standard deviation of the noise in units of C; 0 adds none", low=0)
    q: float = setting(
        0.0,
        "probability with which a step draws a given sample or client; 0: not said, nothing promised",
        low=0,
        high=1,
    )
    rounds: int = setting(0, "noised steps in the whole training; 0: not said, nothing promised", low=0)
    delta: float = setting(1e-5, "delta of the promise", above=0, high=0.5)
    accountant: str = setting("rdp", "our own bound, or Opacus' RDP or PRV (extra: privacy)", choices=ACCOUNTANTS)

    def combined(self, updates: Sequence[SharedUpdate]) -> SharedUpdate:
        return mean_of_rounds(updates)

    def mu(self, steps: int = 1) -> float | None:
        """mu-GDP of so many noised steps that one unit certainly takes part in; None without clipping or noise."""
        return mu_of_steps(self.sigma, steps) if self.norm and self.sigma else None

    def promises(self) -> list[tuple[float, float]]:
        """(epsilon, delta) at several delta, all of which hold for the training as stated; empty if it is not."""
        made = (dataclasses.replace(self, delta=delta).guarantee() for delta in _DELTAS)
        return [(promise.epsilon, promise.delta) for promise in made if promise is not None]

    def guarantee(self) -> Guarantee | None:
        """None without clipping, noise, a sampling rate or a number of steps."""
        sigma = self.sigma if self.norm else 0.0
        return accounted(
            self.unit, sigma=sigma, q=self.q, rounds=self.rounds, delta=self.delta, accountant=self.accountant
        )
