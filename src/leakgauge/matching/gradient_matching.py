"""The common core of DLG and its relatives: find inputs whose gradient equals the observed one."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, cat, nn

from leakgauge.engine import descent, lbfgs, line_search
from leakgauge.engine.driving import Minimum, Problem
from leakgauge.engine.film import frame_steps
from leakgauge.engine.randomness import normal
from leakgauge.matching.attempts import SCHEDULES, Start, solve
from leakgauge.matching.clipping import clipping_setting, noise_in_gradient, noised_setting, numbers_for_replay
from leakgauge.matching.compression import compression_setting
from leakgauge.matching.hidden_noise import bottleneck_setting
from leakgauge.matching.informed import as_told
from leakgauge.matching.labels import SOURCES, searched_labels
from leakgauge.matching.muting import skip_setting
from leakgauge.matching.priors import total_variation
from leakgauge.matching.problem import Puzzle, puzzle_of
from leakgauge.matching.robust_slices import search_in_slices, slices_setting
from leakgauge.matching.starts import STARTS, start_inputs
from leakgauge.matching.stretching import stretch_setting, stretched
from leakgauge.matching.sum_of_clients import clients_setting
from leakgauge.matching.unlocking import unlock_setting
from leakgauge.matching.unmixing import unmix_setting
from leakgauge.matching.unrolling import repeat_lr_setting, repeats_setting
from leakgauge.matching.untransforming import check_policy, policy_setting, undo_setting
from leakgauge.settings import setting
from leakgauge.types import Attack, Batch, Fact, Observation, Progress, Reconstruction

_LABEL_STRETCH = 10.0  # the optimiser moves label logits in units of 10: a one-hot label lies far out and flat
_PATIENCE = 12  # steps (of 20 iterations) without 1 % of progress, after which an attempt is given up
_FALLEN = 1e-4  # of where an attempt began: it is not solved before
DISTANCES = ("l2", "l1", "cosine", "entropy", "scaled", "scaled-each")
_FRAMES = 12  # at most: a strip is one look
_RATES = {"lbfgs": 1.0, "sgd": 0.1}  # of the others: 0.01


@dataclass(frozen=True)
class GradientMatching(Attack):
    """Fields and loop shared by attacks that match gradients from a chosen start."""

    steps: int = setting(300, "steps per attempt; one L-BFGS step is 20 iterations", low=1)
    init: str = setting("random", "where the inputs start", choices=STARTS)
    restarts: int = setting(3, "attempts at most", low=1)
    schedule: str = setting(
        "in-turn", "another attempt while the threshold is missed, or all at once with halving", choices=SCHEDULES
    )
    time_budget: float | None = setting(None, "seconds for all victims together; none unless given", above=0)
    optimizer: str = setting("lbfgs", "update rule", choices=("lbfgs", *descent.RULES))
    lr: float | None = setting(None, "step length: 1 for lbfgs, 0.1 for sgd, 0.01 for the others unless given", above=0)
    history: int = setting(100, "pairs that L-BFGS remembers", low=1)
    line_search: str = setting(
        "armijo",
        "how L-BFGS chooses its step: shorten it until it goes down, strong Wolfe, or never change it",
        choices=line_search.RULES,
    )
    threshold: float = setting(
        1e-8,
        "gradient distance that counts as solved, beside that of an update of zeros (for l2 the squared norm)",
        above=0,
    )
    absolute_threshold: float | None = setting(
        None, "the distance itself that counts as solved, instead: as papers state it", above=0
    )
    labels: str = setting("infer", "where hidden labels come from: the last layer or the search", choices=SOURCES)
    distance: str = setting("l2", "how gradients are compared", choices=DISTANCES)
    tv: float = setting(0.0, "weight of total variation beside the distance, for pictures", low=0)
    noise_std: float = setting(0.0, "scale of the noise known to be in each entry: what it explains is solved", low=0)
    match_nonzero: bool = setting(False, "compare only entries that are not exactly zero in the update")
    read_dropout: bool = setting(False, "read the client's dropout off the last layer's gradient")
    skip: str = skip_setting()
    bottleneck: str = bottleneck_setting()
    unlock: bool = unlock_setting()
    stretch: bool = stretch_setting()
    unmix: bool = unmix_setting()
    policy: str = policy_setting()
    undo: str = undo_setting()
    repeats: int = repeats_setting()
    repeat_lr: float = repeat_lr_setting()
    compression: str = compression_setting()
    clipping: str = clipping_setting()
    noise_on: str = noised_setting()
    noised_slices: str = slices_setting()
    clients: int = clients_setting()
    film: int = setting(
        0, "pictures of the search on its way, for the report's film strip; none unless given", low=0, high=_FRAMES
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_policy(self.policy)

    def labels_of(self, observation: Observation, rule: str = "auto") -> Tensor | None:
        """(T, N) as revealed or, where `labels` says so, inferred; None where they are optimised with the inputs."""
        return searched_labels(observation, self.labels, rule)

    @property
    def rows_per_trial(self) -> int:
        return self.restarts if self.schedule == "halving" else 1

    def numbers_per_row(self, observation: Observation) -> int:
        return numbers_for_replay(self.clipping, observation)

    def match(
        self, observation: Observation, seeds: tuple[int, ...], progress: Progress, labels: Tensor | None
    ) -> Reconstruction:
        """Optimise the inputs, and the labels with them where they are None. Attempts are chosen by own objective."""
        return self._restated(observation)._match(observation, seeds, progress, labels)

    def _match(
        self, observation: Observation, seeds: tuple[int, ...], progress: Progress, labels: Tensor | None
    ) -> Reconstruction:
        puzzle = puzzle_of(
            observation,
            labels,
            distance=self.distance,
            prior=self.prior,
            match_nonzero=self.match_nonzero,
            read_dropout=self.read_dropout,
        )
        puzzle = as_told(
            dataclasses.replace(puzzle, label_unit=_LABEL_STRETCH),
            observation,
            clients=self.clients,
            skip=self.skip,
            bottleneck=self.bottleneck,
            unlock=self.unlock,
            unmix=self.unmix,
            policy=self.policy,
            undo=self.undo,
            repeats=self.repeats,
            repeat_lr=self.repeat_lr,
            compression=self.compression,
            clipping=self.clipping,
        )
        if puzzle.clipping is not None:
            puzzle = dataclasses.replace(puzzle, length_unit=puzzle.clipping.length(observation))
        public = observation.fact(Fact.PUBLIC_DATA) if observation.knows(Fact.PUBLIC_DATA) else None

        frames = frame_steps(self.steps, self.film)

        def minimise(
            problem: Problem, start: Tensor, *, attempts: int, until: float, progress: Progress, goals: Tensor
        ) -> Minimum:
            if self.optimizer == "lbfgs":
                return lbfgs.minimise(
                    problem,
                    start,
                    steps=self.steps,
                    lr=self._rate,
                    history=self.history,
                    line_search=self.line_search,
                    stop_below=goals[:, 0],
                    stop_share=goals[:, 1],
                    patience=_PATIENCE,
                    attempts=attempts,
                    until=until,
                    progress=progress,
                    frames=frames,
                )
            return descent.descend(
                problem,
                start,
                steps=self.steps,
                lr=self._rate,
                rule=self.optimizer,
                stop_below=goals[:, 0],
                stop_share=goals[:, 1],
                attempts=attempts,
                until=until,
                progress=progress,
                frames=frames,
            )

        def search(puzzle: Puzzle, start: Start, progress: Progress) -> Reconstruction:
            solved_below, share = self._solved_below(puzzle)

            def settled(value: Tensor, begun: Tensor) -> Tensor:
                """Is another attempt pointless? With a prior there is no threshold: half the start will do."""
                solved = (value < solved_below) & (value < share * begun)
                return solved | (value < 0.5 * begun) if self.tv else solved

            found = solve(
                puzzle,
                seeds,
                start=start,
                minimise=minimise,
                attempts=self.restarts,
                schedule=self.schedule,
                settled=settled,
                time_budget=self.time_budget,
                progress=progress,
                goals=torch.stack((solved_below, share), 1),
            )
            assert found.trace is not None
            met = (found.objective < solved_below) & (found.objective < share * found.trace[:, 0])
            return dataclasses.replace(found, solved=met & (found.steps > 0), film_steps=frames)

        def begun_labels(some: Sequence[int]) -> Tensor | None:
            """Of some trials, which are named by their seeds."""
            return None if labels is None else labels[[seeds.index(seed) for seed in some]]

        def own_start(some: Sequence[int], attempt: int) -> Tensor:
            return self._start(puzzle, public, some, attempt, begun_labels(some))

        found = search_in_slices(self.noised_slices, puzzle, observation, seeds, search, own_start, progress)
        if self.stretch and found.inputs is not None:
            found = dataclasses.replace(found, inputs=stretched(found.inputs, puzzle), film=None, film_steps=())
        return found

    def prior(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:  # noqa: ARG002
        """What is added to the distance, (A,): total variation here."""
        return self.tv * total_variation(inputs) if self.tv else inputs.new_zeros(len(inputs))

    def _restated(self, observation: Observation) -> GradientMatching:
        """What is known of the noise as it is in the gradient that is matched, and the prior's weight accordingly.

        A mean over rounds or clients holds one draw of each: the variance falls by their number, and the mean of
        several Laplace draws, of variance 2 b^2 each, is taken for normal.
        """
        factor = noise_in_gradient(self.noise_on, observation, self.clients)
        power = 1 if self.distance == "l1" else 2  # the prior is weighed against magnitudes or squares
        tv = factor**power * self.tv
        told = dataclasses.replace(self, noise_std=factor * self.noise_std, tv=tv, noise_on="gradient")
        draws = observation.fact(Fact.LOCAL_TRAINING).seen * self.clients
        if draws == 1 or not (told.noise_std or "stochastic" in told.compression):
            return told
        if told.noise_std and told.distance == "l1":
            std = math.sqrt(2 / draws) * told.noise_std
            return dataclasses.replace(told, noise_std=std, distance="l2", tv=told.tv * 2 * std**2 / told.noise_std)
        return dataclasses.replace(told, noise_std=told.noise_std / math.sqrt(draws), tv=told.tv / draws)

    @property
    def _rate(self) -> float:
        return _RATES.get(self.optimizer, 0.01) if self.lr is None else self.lr

    def _solved_below(self, puzzle: Puzzle) -> tuple[Tensor, Tensor]:
        """(T,) twice: the threshold, or what known noise alone explains if that is larger; and a share of the start.

        Where the update hardly depends on the inputs every start lies below the threshold: it has to fall as well.
        """
        size = puzzle.size()
        if self.absolute_threshold is None:
            limit, share = self.threshold * size, torch.full_like(size, _FALLEN)
        else:
            limit, share = torch.full_like(size, self.absolute_threshold), torch.full_like(size, torch.inf)
        entries = sum(math.prod(g.shape[1:]) for g in puzzle.observed.values())
        noise = self.noise_std**2 if self.distance != "l1" else self.noise_std
        explained = entries * noise / puzzle.length_unit**2
        return limit.clamp_min(explained), torch.where(limit < explained, torch.inf, share)

    def _start(
        self, puzzle: Puzzle, public: Batch | None, seeds: Sequence[int], attempt: int, labels: Tensor | None
    ) -> Tensor:
        """Inputs as the attack begins them and label logits at N(0, 1), as a flat vector: (A, D)."""
        inputs = start_inputs(self.init, seeds, f"start/{attempt}", puzzle.shape, public, labels)
        logits = normal(seeds, f"labels/{attempt}", (puzzle.width - puzzle.pixels,)) / _LABEL_STRETCH
        return cat((inputs.flatten(1), logits), 1).to(puzzle.like)
