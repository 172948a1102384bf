"""Dropout in front of the last linear layer: each feature is set to zero with probability p while the client trains.

Hinton et al. 2012. What is kept is multiplied by 1 / (1 - p). An attacker who runs the network without the client's
mask computes other logits and other gradients, so nothing it tries fits exactly.

Where we depart. One mask is drawn per client and update and serves all its samples and local steps. For one sample and
one step this is what `nn.Dropout` does. For more, `nn.Dropout` draws a mask per sample and step, and only the features
that no draw kept would show: read a result for a batch as the easier case for the attacker.

The last linear layer is the last in the order in which the model lists its modules.

How to beat it: the weight gradient of the last layer has exact zeros in the column of a dropped feature, so the mask
stands in the update. Gradient matching that reads it there (`read_dropout`) runs the client's own network. In the
first-layer ratio the dropped units are rows of zeros: the other rows are fitted together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from leakgauge.defenses._before_last import with_last_linear, with_own_draws
from leakgauge.engine.randomness import uniform
from leakgauge.errors import BadInput
from leakgauge.models._layers import MaskedLinear
from leakgauge.settings import setting
from leakgauge.types import Attack, Defense, Step


@dataclass(frozen=True)
class Dropout(Defense):
    """Example: `--defense dropout:p=0.5`"""

    name: ClassVar[str] = "dropout"
    summary: ClassVar[str] = "train with dropout on what enters the last linear layer"
    paper: ClassVar[str] = "Wei et al. 2020 (CPL); Hinton et al. 2012"

    p: float = setting(0.5, "probability that a feature is dropped, below 1; 0 drops none", low=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.p >= 1:
            raise BadInput(
                "dropout: p", allowed="at least 0 and below 1", got=self.p, do="choose a value in that range"
            )

    def prepare(self, model: nn.Module) -> nn.Module:
        """`model` with a masked last linear layer, its mask all ones; names and parameters stay as they are."""
        if self.p == 0:
            return model
        return with_last_linear(model, self.name, lambda linear: MaskedLinear(linear, scale=1 / (1 - self.p)))

    def wrap(self, step: Step) -> Step:
        if self.p == 0:
            return step
        return with_own_draws(step, MaskedLinear, "mask", lambda seeds, shape: draw_masks(seeds, shape.numel(), self.p))

    def adaptive(self, attack: Attack) -> tuple[Attack, ...]:
        if self.p == 0:
            return ()
        informed = attack.with_fields(read_dropout=True)
        informed = informed or attack.with_fields(match_nonzero=True, combine="least-squares")
        informed = informed or attack.with_fields(coefficients="solved")  # whichever units were dropped
        return (informed,) if informed else ()


def draw_masks(seeds: Sequence[int], features: int, p: float) -> Tensor:
    """(T, features): 0 with probability p, else 1 / (1 - p)."""
    return (uniform(seeds, "dropout", (features,)) >= p) / (1 - p)
