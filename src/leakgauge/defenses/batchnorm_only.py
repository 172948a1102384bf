"""The ablation beside `key-lock`: the same network with a plain BatchNorm where the lock would be, and no secret.

Ren's thesis (Swansea 2023, chapter 5) compares a LeNet without any normalisation with one that has a locked BatchNorm.
Two things change at once. In train mode and for one sample BatchNorm alone stops DLG as it is scored there: the input's
brightness and contrast have no effect on the update. What the lock adds is the difference to this configuration. A
model that has a normalisation already stays as it is.

How to beat it: only a scale is hidden, so the picture is found up to brightness and contrast. The informed attacker
stretches it to the full range; aligned scores show what shape leaked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from leakgauge.defenses._families import FitsRows
from leakgauge.matching.problem import Matching
from leakgauge.models.locked_norm import FIRST, with_norm
from leakgauge.settings import setting
from leakgauge.types import Observation

_START = "patterned-4"  # three CIFAR-10 victims, 80 steps: 32.5 dB aligned, from noise 25.8


@dataclass(frozen=True)
class BatchNormOnly(FitsRows):
    """Example: `--defense batchnorm-only --local batchnorm=train`"""

    name: ClassVar[str] = "batchnorm-only"
    summary: ClassVar[str] = "put a plain BatchNorm where key-lock has its locked one, to compare the two"
    paper: ClassVar[str] = "ablation of Ren 2023 (FedKL); Ioffe and Szegedy 2015"

    layer: str = setting(FIRST, "the layer that gets a BatchNorm behind it, by name; or the first")

    def prepare(self, model: nn.Module) -> nn.Module:
        return with_norm(model, self.layer)

    def informs_matching(self, problem: Matching, observation: Observation, way: str) -> Matching:  # noqa: ARG002
        return with_hidden_scale(problem)


def with_hidden_scale(problem: Matching) -> Matching:
    """The problem of a picture whose scale is hidden: reported in full range, and begun smoother than noise."""
    return problem.replace(stretch=True, begin=_START)
