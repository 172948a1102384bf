"""The common core of DLG and its relatives: find inputs whose gradient equals the observed one."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from leakgauge.engine import descent, lbfgs
from leakgauge.engine.driving import frame_steps
from leakgauge.engine.randomness import normal
from leakgauge.matching.attempts import SCHEDULES, Minimise, SearchAttack
from leakgauge.matching.labels import SOURCES, searched_labels
from leakgauge.matching.noise import noise_in_gradient
from leakgauge.matching.priors import total_variation
from leakgauge.matching.problem import Likely, Matching, Start, matching_of
from leakgauge.matching.replays import AUTO, SURROGATE, chosen_replay
from leakgauge.matching.starts import STARTS, start_inputs
from leakgauge.settings import setting
from leakgauge.types import Fact, Observation, Progress, Reconstruction

_LABEL_STRETCH = 10.0  # the optimiser moves label logits in units of 10: a one-hot label lies far out and flat
_PATIENCE = 12  # steps (of 20 iterations) without 1 % of progress, after which an attempt is given up
_FALLEN = 1e-4  # of where an attempt began: it is not solved before
DISTANCES = ("l2", "l1", "cosine", "entropy", "scaled", "scaled-each")
THRESHOLD = "gradient distance that counts as solved, beside that of an update of zeros (for l2 the squared norm)"
LINE_SEARCH = "how L-BFGS chooses its step: shorten it until it goes down, strong Wolfe, or never change it"
_FRAMES = 12  # at most: a strip is one look
_RATES = {"lbfgs": 1.0, "sgd": 0.1}  # of the others: 0.01


@dataclass(frozen=True)
class GradientMatching(SearchAttack):
    """Fields and loop shared by attacks that match gradients from a chosen start."""

    kind: ClassVar[type] = Likely
    losses: ClassVar[tuple[str, ...]] = ()
    distances: ClassVar[tuple[str, ...]] = DISTANCES

    steps: int = setting(300, "steps per attempt; one L-BFGS step is 20 iterations", low=1)
    init: str = setting("random", "where the inputs start", choices=STARTS)
    restarts: int = setting(3, "attempts at most", low=1)
    schedule: str = setting(
        "in-turn", "another attempt while the threshold is missed, or all at once with halving", choices=SCHEDULES
    )
    optimizer: str = setting("lbfgs", "update rule", choices=("lbfgs", *descent.RULES))
    lr: float | None = setting(None, "step length: 1 for lbfgs, 0.1 for sgd, 0.01 for the others unless given", above=0)
    history: int = setting(100, "pairs that L-BFGS remembers", low=1)
    line_search: str = setting("armijo", LINE_SEARCH, choices=lbfgs.RULES)
    threshold: float = setting(1e-8, THRESHOLD, above=0)
    absolute_threshold: float | None = setting(None, "the distance that counts as solved, as papers state it", above=0)
    labels: str = setting("infer", "where hidden labels come from: the last layer or the search", choices=SOURCES)
    distance: str = setting("l2", "how gradients are compared", choices=DISTANCES)
    tv: float = setting(0.0, "weight of total variation beside the distance, for pictures", low=0)
    film: int = setting(0, "pictures of the search on its way, for the report's film strip", low=0, high=_FRAMES)

    def labels_of(self, observation: Observation) -> Tensor | None:
        """(T, N) as revealed or, where `labels` says so, inferred; None where they are optimised with the inputs."""
        return searched_labels(observation, self.labels)

    def problem(self, observation: Observation, seeds: tuple[int, ...]) -> Matching:  # noqa: ARG002
        """The inputs in their own units, and the labels with them where they are not known."""
        return matching_of(
            observation,
            self.labels_of(observation),
            distance=self.distance,
            prior=self.prior,
            variation=self.tv,
            by_direction=self.distance == "cosine",
            kind=Likely,
            searches_labels=True,
            distances=self.distances,
            label_unit=_LABEL_STRETCH,
            surrogate=chosen_replay(AUTO, observation, unrolls=False) == SURROGATE,
        )

    def solve(self, problem: Matching, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:
        """Optimise the inputs, and the labels with them where they are None. Attempts are chosen by own objective."""
        likely, noise = with_likelihood(problem)
        return super().solve(likely.replace(noise_scale=noise), seeds, progress)

    def attempt(
        self, problem: Matching, start: Start, seeds: tuple[int, ...], attempts: int, progress: Progress, **_: Any
    ) -> Reconstruction:
        below, share = self._solved_below(problem)

        def enough(value: Tensor, begun: Tensor) -> Tensor:
            """Is another attempt pointless? With a prior there is no threshold: half the start will do."""
            solved = (value < below) & (value < share * begun)
            return solved | (value < 0.5 * begun) if problem.variation else solved

        more = {"enough": enough, "goals": {"stop_below": below, "stop_share": share}}
        found = super().attempt(problem, start, seeds, attempts, progress, **more)
        assert found.trace is not None
        solved = (found.objective < below) & (found.objective < share * found.trace[:, 0]) & (found.steps > 0)
        return dataclasses.replace(found, solved=solved, film_steps=frame_steps(self.steps, self.film))

    def optimiser(self, problem: Matching, seeds: tuple[int, ...]) -> Minimise:  # noqa: ARG002
        """The update rule with its settings."""
        rate = _RATES.get(self.optimizer, 0.01) if self.lr is None else self.lr
        own: dict[str, Any] = {"steps": self.steps, "lr": rate, "frames": frame_steps(self.steps, self.film)}
        if self.optimizer != "lbfgs":
            return partial(descent.descend, rule=self.optimizer, **own)
        own |= {"history": self.history, "line_search": self.line_search, "patience": _PATIENCE}
        return partial(lbfgs.minimise, **own)

    def prior(self, problem: Matching, inputs: Tensor, targets: Tensor) -> Tensor:  # noqa: ARG002
        """What is added to the distance, (A,): total variation here."""
        return problem.variation * total_variation(inputs) if problem.variation else inputs.new_zeros(len(inputs))

    def _solved_below(self, problem: Matching) -> tuple[Tensor, Tensor]:
        """(T,) twice: the threshold, or what known noise alone explains if that is larger; and a share of the start.

        Where the update hardly depends on the inputs every start lies below the threshold: it has to fall as well.
        """
        size, noise = problem.size(), problem.noise_scale
        if self.absolute_threshold is None:
            limit, share = min(self.threshold, problem.exact) * size, torch.full_like(size, _FALLEN)
        else:
            limit, share = torch.full_like(size, self.absolute_threshold), torch.full_like(size, torch.inf)
        entries = sum(math.prod(g.shape[1:]) for g in problem.observed.values())
        explained = entries * (noise if problem.distance == "l1" else noise**2) / problem.length_unit**2
        return limit.clamp_min(explained), torch.where(limit < explained, torch.inf, share)

    def start(self, problem: Matching, seeds: tuple[int, ...]) -> Start:
        """Inputs as the attack begins them and label logits at N(0, 1), as a flat vector: (A, D)."""
        observation, labels = problem.observation, problem.known_labels
        public = observation.fact(Fact.PUBLIC_DATA) if observation.knows(Fact.PUBLIC_DATA) else None
        init = problem.begin if problem.begin and self.init == "random" else self.init

        def start(some: Sequence[int], attempt: int) -> Tensor:
            known = None if labels is None else labels[[seeds.index(seed) for seed in some]]
            inputs = start_inputs(init, some, f"start/{attempt}", problem.shape, public, known)
            logits = normal(some, f"labels/{attempt}", (problem.width - problem.pixels,)) / _LABEL_STRETCH
            return torch.cat((inputs.flatten(1), logits), 1).to(problem.like)

        return start


def with_likelihood(problem: Matching) -> tuple[Matching, float]:
    """The problem with the distance and the smoothness that known noise asks for, and its scale in the gradient.

    The prior is weighed for the noise on what was shared, and restated here for the gradient that is matched. The mean
    over rounds or clients holds one draw of each: the variance falls by their number, and the mean of several Laplace
    draws, of variance 2 b^2 each, is taken for normal.
    """
    known = problem.noise
    if known is None:
        return problem, 0.0
    factor = noise_in_gradient(known.on, problem.observation, problem.clients)
    distance, scale = known.distance, factor * known.scale
    if distance == "l2" and str(problem.distance).startswith("scaled"):
        distance = str(problem.distance)  # squares too, of an update whose scale another defense hides
    variation = (problem.variation or 0.0) * (factor if distance == "l1" else factor**2)
    draws = problem.observation.fact(Fact.LOCAL_TRAINING).seen * problem.clients
    if draws > 1 and distance == "l1":
        distance, variation = "l2", variation * 4 * scale / draws
        scale *= math.sqrt(2 / draws)
    elif draws > 1:
        scale, variation = scale / math.sqrt(draws), variation / draws
    return problem.replace(distance=distance, variation=variation), scale
