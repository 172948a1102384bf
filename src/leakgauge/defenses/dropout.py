"""Dropout in front of the last linear layer: each feature is set to zero with probability p while the client trains.

Hinton et al. 2012. What is kept is multiplied by 1 / (1 - p). An attacker who runs the network without the client's
mask computes other logits and other gradients, so nothing it tries fits exactly.

Where we depart. One mask is drawn per client and update and serves all its samples and local steps. For one sample and
one step this is what `nn.Dropout` does. For more, `nn.Dropout` draws a mask per sample and step, and only the features
that no draw kept would show: read a result for a batch as the easier case for the attacker. The last linear layer is
the last in the order in which the model lists its modules.

How to beat it: the last layer's weight gradient has exact zeros in the column of a dropped feature. Gradient matching
reads the mask there and runs the client's own network. In the first-layer ratio the dropped units are rows of zeros:
the other rows are fitted together.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from leakgauge.defenses._families import SolvesPeeled, with_last_linear, with_own_draws
from leakgauge.engine.randomness import uniform
from leakgauge.errors import BadInput, NotApplicable
from leakgauge.matching.problem import Matching
from leakgauge.matching.updates import classifier_layer, observed_gradient
from leakgauge.models.layers import MaskedLinear
from leakgauge.settings import setting
from leakgauge.types import Observation, Step


@dataclass(frozen=True)
class Dropout(SolvesPeeled):
    """Example: `--defense dropout:p=0.5`"""

    name: ClassVar[str] = "dropout"
    summary: ClassVar[str] = "train with dropout on what enters the last linear layer"
    paper: ClassVar[str] = "Wei et al. 2020 (CPL); Hinton et al. 2012"
    strength: ClassVar[str] = "p"
    leaves_zeros: ClassVar[bool] = True  # dropped units are rows of zeros

    p: float = setting(0.5, "probability that a feature is dropped, below 1; 0 drops none", low=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.p >= 1:
            raise BadInput("dropout: p", allowed="at least 0 and below 1", got=self.p, do="choose such a value")

    def prepare(self, model: nn.Module) -> nn.Module:
        """`model` with a masked last linear layer, its mask all ones; names and parameters stay as they are."""
        masked = functools.partial(MaskedLinear, scale=1 / (1 - self.p))
        return model if self.idle else with_last_linear(model, self.name, masked)

    def wrap(self, step: Step) -> Step:
        masked = with_own_draws(step, MaskedLinear, "mask", lambda seeds, shape: draw_masks(seeds, shape[0], self.p))
        return step if self.idle else masked

    def informs_matching(self, problem: Matching, observation: Observation, way: str) -> Matching:  # noqa: ARG002
        """The client's own network, its mask read off the last layer's gradient."""
        return problem.replace(masks={**problem.masks, **visible_masks(observation)})


def draw_masks(seeds: Sequence[int], features: int, p: float) -> Tensor:
    """(T, features): 0 with probability p, else 1 / (1 - p)."""
    return (uniform(seeds, "dropout", (features,)) >= p) / (1 - p)


def visible_masks(observation: Observation) -> dict[str, Tensor]:
    """The mask in front of the last layer, read off its weight gradient: the column of a dropped unit is zero."""
    layer = classifier_layer(observation)
    gradient = observed_gradient(observation)
    module = observation.model.get_submodule(layer)
    if f"{layer}.weight" not in gradient:
        raise NotApplicable(f"dropout shows in the gradient of {layer}.weight, which is frozen or not shared")
    if not isinstance(module, MaskedLinear):
        raise NotApplicable("dropout is read off a model that has it before its last layer, and this one has none")
    return {f"{layer}.mask": module.visible_masks(gradient[f"{layer}.weight"])}
