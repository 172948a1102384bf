"""Additive Gaussian noise: g + n, n ~ N(0, std^2) on every entry of the update.

Without clipping the sensitivity is unbounded, so this promises nothing: `guarantee` stays None.

How to beat it. Squared distance already is the noise's likelihood; an attacker who knows `std` stops where the noise
alone explains the rest and lets a smoothness prior decide the remainder. The first-layer ratio fits all rows at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from leakgauge.client.sums import mean_of_rounds
from leakgauge.engine.randomness import normal
from leakgauge.settings import setting
from leakgauge.types import Attack, Batch, Defense, SharedUpdate, Step, TamperingServer

_STRONG_VARIATION = 0.01  # for attacks that match directions; a hundred times their usual weight
_PRIOR_SHARPNESS = 10.0  # neighbouring pixels of a picture differ by about 1/10: the scale of its smoothness prior


@dataclass(frozen=True)
class Gaussian(Defense):
    """Example: `--defense gaussian:std=0.01`"""

    name: ClassVar[str] = "gaussian"
    summary: ClassVar[str] = "add Gaussian noise to every entry of the update"
    paper: ClassVar[str] = "Zhu et al. 2019; Wei et al. 2020 (CPL), Table 8"

    std: float = setting(0.01, "standard deviation of the noise; 0 adds none", low=0)
    relative: bool = setting(False, "in units of each tensor's own standard deviation")

    def wrap(self, step: Step) -> Step:
        if self.std == 0:
            return step

        def noisy(model: nn.Module, batch: Batch, seeds: Sequence[int]) -> SharedUpdate:
            shared = step(model, batch, seeds)
            units = spread_of if self.relative else _ones
            return shared.map(
                lambda name, t: t + self.std * units(t) * normal(seeds, f"gaussian/{name}", t.shape[1:]).to(t)
            )

        return noisy

    def adaptive(self, attack: Attack) -> tuple[Attack, ...]:
        return knows_noise(attack, self.std, "l2", self.relative)

    def combined(self, updates: Sequence[SharedUpdate]) -> SharedUpdate:
        return mean_of_rounds(updates)


def spread_of(tensor: Tensor) -> Tensor:
    """The standard deviation of each trial's entries: (T, 1, ...)."""
    spread = tensor.flatten(1).std(1, unbiased=False)
    return spread.view(-1, *[1] * (tensor.dim() - 1))


def _ones(_: Tensor) -> float:
    return 1.0


def knows_noise(attack: Attack, scale: float, distance: str, relative: bool = False) -> tuple[Attack, ...]:
    """`attack` told how large the noise is and which distance is its likelihood, if it can use that.

    `scale` is that of the noise on what is sent. Where that is a weight difference, the attack restates it for the
    gradient it matches (`noise_on`). Noise in units of each tensor has no one scale: only the smoothness is told then.
    """
    if scale == 0:
        return ()
    if isinstance(attack, TamperingServer):
        louder = None if relative else attack.louder()
        return (louder,) if louder else ()
    # Maximum a posteriori: the distance divided by its likelihood's scale, plus the prior's.
    tv = _PRIOR_SHARPNESS * (2 * scale**2 if distance == "l2" else scale)
    told = getattr(attack, "distance", "")
    if distance == "l2" and told.startswith("scaled"):  # squares too, of an update whose scale an earlier defence hides
        distance = told
    informed = None
    if not relative:
        informed = attack.with_fields(noise_std=scale, distance=distance, tv=tv, noise_on="update")
    informed = informed or attack.with_fields(combine="least-squares")
    if informed is None and (current := getattr(attack, "tv", None)) is not None:
        informed = attack.with_fields(tv=max(current, _STRONG_VARIATION))  # a cosine has no likelihood: smooth more
    return (informed,) if informed else ()
