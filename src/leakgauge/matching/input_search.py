"""What `inverting-gradients` and `portfolio` share: first-order searches in units of the data, ranked without prior."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from leakgauge.engine import descent
from leakgauge.matching.attempts import Minimise, SearchAttack
from leakgauge.matching.labels import SOURCES, searched_labels
from leakgauge.matching.priors import mean_variation
from leakgauge.matching.problem import Matching, matching_of, units_of_data
from leakgauge.matching.updates import example_input
from leakgauge.models.structure import has_kinks
from leakgauge.settings import setting
from leakgauge.types import Fact, LocalTraining, Observation


@dataclass(frozen=True)
class InputSearch(SearchAttack):
    """Fields and problem of attacks that descend in the inputs."""

    lr: float = setting(0.1, "step length in standard deviations of the data", above=0)
    boxed: bool = setting(True, "keep pixels in their range")
    labels: str = setting("infer", "where hidden labels come from: the last layer or the search", choices=SOURCES)
    assumed_steps: int | None = setting(None, "local steps to unroll, on all samples; as known unless given", low=1)
    assumed_lr: float | None = setting(None, "local learning rate to unroll with; as known unless given", above=0)

    def posed(
        self, observation: Observation, distance: str, variation: float, distances: tuple[str, ...] = ()
    ) -> Matching:
        """Inputs in standard deviations of the data; the distance without the prior ranks points.

        Local steps are replayed, as known or as the attacker assumes them.
        """
        local: LocalTraining = observation.fact(Fact.LOCAL_TRAINING)
        assumed: dict[str, Any] = {} if self.assumed_lr is None else {"lr": self.assumed_lr}
        if self.assumed_steps is not None:
            assumed |= {"epochs": self.assumed_steps, "batch_size": 0}
        return matching_of(
            observation,
            searched_labels(observation, self.labels),
            distance=distance,
            prior=smooth,
            unrolled=None if local.kind == "fedsgd" else dataclasses.replace(local, **assumed),
            variation=variation,
            by_direction=distance == "cosine" or not distances,
            searches_labels=True,
            distances=distances,
            prior_counts=False,
            **units_of_data(observation),
        )

    def descending(self, problem: Matching, **rule: Any) -> Minimise:
        """Descent with the settings of this attack, and of `descend`."""
        if self.boxed:
            rule["project"] = problem.boxed
        return partial(descent.descend, steps=self.steps, lr=self.lr, **rule)


def smooth(problem: Matching, inputs: Tensor, _: Tensor) -> Tensor:
    """Total variation in standard deviations of the data, with the problem's weight."""
    assert problem.variation is not None
    return problem.variation * mean_variation(problem.in_units(inputs))


def sign_for(observation: Observation) -> str:
    """What becomes of an image's gradient before a step: its soft sign behind kinks, itself on a smooth network."""
    return "soft" if has_kinks(observation.model, example_input(observation)) else "none"
