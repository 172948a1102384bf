"""The ablation beside `key-lock`: the same network with a plain BatchNorm where the lock would be, and no secret.

Ren's thesis (Swansea 2023, chapter 5) compares a LeNet without any normalisation with one that has a locked BatchNorm.
Two things change at once. In train mode and for one sample BatchNorm alone stops DLG as it is scored there: the input's
brightness and contrast have no effect on the update. What the lock adds is the difference to this configuration.

How to beat it: nothing is hidden but a scale, so the picture is found up to brightness and contrast. The informed
attacker stretches it to the full range; aligned scores show what shape leaked. A model that has a normalisation already
stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from leakgauge.models._key_lock import FIRST, with_norm
from leakgauge.settings import setting
from leakgauge.types import Attack, Defense

_START = "patterned-4"  # three CIFAR-10 victims, 80 steps: 32.5 dB aligned, from noise 25.8


@dataclass(frozen=True)
class BatchNormOnly(Defense):
    """Example: `--defense batchnorm-only --local batchnorm=train`"""

    name: ClassVar[str] = "batchnorm-only"
    summary: ClassVar[str] = "put a plain BatchNorm where key-lock has its locked one, to tell the two apart"
    paper: ClassVar[str] = "ablation of Ren 2023 (FedKL); Ioffe and Szegedy 2015"

    layer: str = setting(FIRST, "the layer that gets a BatchNorm behind it, by name; or the first")

    def prepare(self, model: nn.Module) -> nn.Module:
        return with_norm(model, self.layer)

    def adaptive(self, attack: Attack) -> tuple[Attack, ...]:
        informed = stretching(attack) or attack.with_fields(combine="least-squares")
        return (informed,) if informed else ()


def stretching(attack: Attack) -> Attack | None:
    """The attack for a picture whose scale is hidden: stretched, and from a smoother start than noise."""
    informed = attack.with_fields(stretch=True)
    return informed.with_fields(init=_START) if informed and getattr(attack, "init", "") == "random" else informed
