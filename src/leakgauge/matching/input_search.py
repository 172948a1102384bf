"""What `inverting-gradients` and `portfolio` share: first-order searches in units of the data, ranked without prior."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.matching.labels import SOURCES, searched_labels
from leakgauge.matching.priors import mean_variation
from leakgauge.matching.problem import Matching, in_units_of_data, matching_of
from leakgauge.matching.updates import example_input
from leakgauge.models.structure import has_kinks
from leakgauge.settings import setting
from leakgauge.types import Attack, Fact, LocalTraining, Observation


@dataclass(frozen=True)
class InputSearch(Attack):
    """Fields and problem of attacks that descend in the inputs."""

    kind: ClassVar[type] = Matching
    losses: ClassVar[tuple[str, ...]] = ()

    steps: int = setting(4800, "optimiser steps per attempt", low=1)
    time_budget: float | None = setting(None, "seconds for all victims together; none unless given", above=0)
    lr: float = setting(0.1, "step length in standard deviations of the data", above=0)
    boxed: bool = setting(True, "keep pixels in their range")
    labels: str = setting("infer", "where hidden labels come from: the last layer or the search", choices=SOURCES)
    assumed_steps: int | None = setting(None, "local steps to unroll, on all samples each; as told unless given", low=1)
    assumed_lr: float | None = setting(None, "local learning rate to unroll with; as told unless given", above=0)

    def posed(
        self, observation: Observation, distance: str, variation: float, distances: tuple[str, ...] = ()
    ) -> Matching:
        """Inputs in standard deviations of the data; the distance without the prior ranks points."""
        like = next(iter(observation.update.tensors.values()))  # device and precision
        centre, unit = in_units_of_data(observation, like)
        return matching_of(
            observation,
            searched_labels(observation, self.labels),
            distance=distance,
            prior=smooth,
            unrolled=self._unrolled(observation),
            variation=variation,
            by_direction=distance == "cosine" or not distances,
            searches_labels=True,
            distances=distances,
            prior_counts=False,
            centre=centre,
            unit=unit,
        )

    def _unrolled(self, observation: Observation) -> LocalTraining | None:
        """The local steps to replay, as told or as the attacker assumes; None for a single gradient."""
        local: LocalTraining = observation.fact(Fact.LOCAL_TRAINING)
        if local.kind == "fedsgd" or local.adaptive:  # a sign has no slope to replay
            return None
        if self.assumed_steps is not None:
            local = dataclasses.replace(local, epochs=self.assumed_steps, batch_size=0)
        return local if self.assumed_lr is None else dataclasses.replace(local, lr=self.assumed_lr)


def smooth(problem: Matching, inputs: Tensor, _: Tensor) -> Tensor:
    """Total variation in standard deviations of the data, with the problem's weight."""
    assert problem.variation is not None
    assert problem.centre is not None
    assert problem.unit is not None
    return problem.variation * mean_variation((inputs - problem.centre) / problem.unit)


def sign_for(observation: Observation) -> str:
    """What becomes of an image's gradient before a step: its soft sign behind kinks, itself on a smooth network."""
    return "soft" if has_kinks(observation.model, example_input(observation)) else "none"


def all_attempts(value: Tensor, _: Tensor) -> Tensor:
    """Nothing settles a trial before its last attempt."""
    return torch.zeros_like(value, dtype=torch.bool)
