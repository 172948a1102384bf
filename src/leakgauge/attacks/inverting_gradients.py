"""Inverting Gradients: match the direction of the gradient with signed Adam, smooth pictures preferred.

Geiping et al., "Inverting Gradients - How easy is it to break privacy in federated learning?", NeurIPS 2020. Cost is
1 - cosine over all tensors together, plus a little total variation; the image's gradient is replaced by its sign, Adam
steps in units of the data's standard deviation, and pixels are kept in their range. The attempt with the lowest cost
without the prior is kept. A weight difference is matched by unrolling the client's local steps.

Where we depart. Published scripts are given the labels; here they are used only if the threat model reveals them, read
off the last layer otherwise (counted for a batch, see `labels`), or optimised with the image (`labels="optimise"`; one
row per sample: the released code has a single row for the whole batch). The step length falls along a cosine and the
sign is softened, or left out where the network is smooth: chosen by PSNR on CIFAR-10 (`sign="hard"`, `decay="steps"`
are theirs). `schedule="averaged"` gives the mean of all attempts in place of the best one, for networks with kinks.
Victims run side by side.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from torch import Tensor

from leakgauge.engine import descent
from leakgauge.matching.attempts import AVERAGED, SCHEDULES, Minimise, SearchAttack
from leakgauge.matching.labels import SOURCES, searched_labels
from leakgauge.matching.priors import mean_variation
from leakgauge.matching.problem import Matching, matching_of, units_of_data
from leakgauge.matching.replays import AUTO, REPLAYS, SURROGATE, UNROLLED, chosen_replay
from leakgauge.matching.replays import HELP as REPLAY_HELP
from leakgauge.matching.updates import example_input
from leakgauge.models.structure import has_kinks
from leakgauge.settings import setting
from leakgauge.types import Client, Fact, Observation

LAYERS = ("all", "first", "last", "largest")
SCHEDULE = "all attempts to the end, the worse half given up early, or all to the end and their mean"
SIGN = "the image's gradient becomes its sign, hard or soft; auto: soft if the network has kinks, else none"
DECAY = "how the step length falls: a half cosine, or tenfold at 3/8, 5/8, 7/8"
DISTANCES = ("cosine", "l2", "l1", "cosine-each", "relative-l1")


@dataclass(frozen=True)
class InputSearch(SearchAttack):
    """First-order searches in units of the data, ranked without prior: fields and problem, also of `portfolio`."""

    losses: ClassVar[tuple[str, ...]] = ()
    distances: ClassVar[tuple[str, ...]] = ()  # that a user may choose

    lr: float = setting(0.1, "step length in standard deviations of the data", above=0)
    boxed: bool = setting(True, "keep pixels in their range")
    labels: str = setting("infer", "where hidden labels come from: the last layer or the search", choices=SOURCES)
    replay: str = setting(AUTO, REPLAY_HELP, choices=REPLAYS)
    assumed_steps: int | None = setting(None, "local steps to unroll, on all samples; as known unless given", low=1)
    assumed_lr: float | None = setting(None, "local learning rate to unroll with; as known unless given", above=0)

    def posed(self, observation: Observation, distance: str, variation: float) -> Matching:
        """Inputs in standard deviations of the data; the distance without the prior ranks points.

        Local steps are accounted for as `replay` says, as known or as the attacker assumes them.
        """
        local: Client = observation.fact(Fact.LOCAL_TRAINING)
        assumed: dict[str, Any] = {} if self.assumed_lr is None else {"lr": self.assumed_lr}
        if self.assumed_steps is not None:
            assumed |= {"epochs": self.assumed_steps, "batch_size": 0}
        replay = chosen_replay(self.replay, observation)
        return matching_of(
            observation,
            searched_labels(observation, self.labels),
            distance=distance,
            prior=smooth,
            unrolled=dataclasses.replace(local, **assumed) if replay == UNROLLED else None,
            surrogate=replay == SURROGATE,
            variation=variation,
            by_direction=distance == "cosine" or not self.distances,
            searches_labels=True,
            distances=self.distances,
            prior_counts=False,
            **units_of_data(observation),
        )

    def descending(self, problem: Matching, **rule: Any) -> Minimise:
        """Descent with the settings of this attack, and of `descend`."""
        if self.boxed:
            rule["project"] = problem.boxed
        return partial(descent.descend, steps=self.steps, lr=self.lr, **rule)


@dataclass(frozen=True)
class InvertingGradients(InputSearch):
    """Cosine matching with signed Adam.

    Example: `leakgauge attack inverting-gradients --data digits --model lenet-dlg --steps 500 --trials 4`
    """

    name: ClassVar[str] = "inverting-gradients"
    summary: ClassVar[str] = "match the gradient's direction with signed Adam and total variation"
    paper: ClassVar[str] = "Geiping et al. 2020, Inverting Gradients, NeurIPS"
    distances: ClassVar[tuple[str, ...]] = DISTANCES

    restarts: int = setting(1, "attempts; the one with the lowest cost is kept, unless they are averaged", low=1)
    schedule: str = setting("halving", SCHEDULE, choices=(*SCHEDULES, AVERAGED))
    optimizer: str = setting("adam", "update rule", choices=descent.RULES)
    decay: str = setting("cosine", DECAY, choices=descent.DECAYS)
    sign: str = setting("auto", SIGN, choices=("auto", *descent.SIGNS))
    tv: float = setting(1e-4, "weight of total variation", low=0)
    distance: str = setting("cosine", "how gradients are compared", choices=DISTANCES)
    layers: str = setting("all", "which tensors are compared", choices=LAYERS)
    layer_count: int = setting(10, "how many tensors, unless all", low=1)

    def problem(self, observation: Observation, seeds: tuple[int, ...]) -> Matching:  # noqa: ARG002
        """Only the chosen tensors are compared."""
        whole = self.posed(observation, self.distance, self.tv)
        chosen = choose_layers(whole.observed, self.layers, self.layer_count)
        return whole.without(whole.observed.keys() - set(chosen))

    def optimiser(self, problem: Matching, seeds: tuple[int, ...]) -> Minimise:  # noqa: ARG002
        sign = sign_for(problem.observation) if self.sign == "auto" else self.sign
        return self.descending(problem, rule=self.optimizer, sign=sign, decay=self.decay)


def choose_layers(tensors: Mapping[str, Tensor], which: str, count: int) -> list[str]:
    """Names of the tensors that enter the cost, in the model's order."""
    names = list(tensors)
    if which == "first":
        return names[:count]
    if which == "last":
        return names[-count:]
    if which == "largest":  # by the mean norm over trials
        norms = {n: float(t.flatten(1).norm(dim=1).mean()) for n, t in tensors.items()}
        return sorted(sorted(names, key=lambda n: -norms[n])[:count], key=names.index)
    return names


def smooth(problem: Matching, inputs: Tensor, _: Tensor) -> Tensor:
    """Total variation in standard deviations of the data, with the problem's weight."""
    assert problem.variation is not None
    return problem.variation * mean_variation(problem.in_units(inputs))


def sign_for(observation: Observation) -> str:
    """What becomes of an image's gradient before a step: its soft sign behind kinks, itself on a smooth network."""
    return "soft" if has_kinks(observation.model, example_input(observation)) else "none"
