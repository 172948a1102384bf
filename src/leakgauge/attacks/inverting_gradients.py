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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from leakgauge.attacks._parts.attempts import AVERAGED, SCHEDULES, Start, solve
from leakgauge.attacks._parts.clipping import clipping_setting, numbers_for_replay
from leakgauge.attacks._parts.compressed import compression_setting
from leakgauge.attacks._parts.hidden_noise import bottleneck_setting
from leakgauge.attacks._parts.labels import SOURCES, searched_labels
from leakgauge.attacks._parts.muting import skip_setting
from leakgauge.attacks._parts.priors import mean_variation
from leakgauge.attacks._parts.puzzle import Puzzle, only, puzzle_of
from leakgauge.attacks._parts.robust_slices import search_in_slices, slices_setting
from leakgauge.attacks._parts.stretching import stretch_setting, stretched
from leakgauge.attacks._parts.sum_of_clients import clients_setting
from leakgauge.attacks._parts.told import as_told
from leakgauge.attacks._parts.unlocking import unlock_setting
from leakgauge.attacks._parts.unmixing import unmix_setting
from leakgauge.attacks._parts.unrolling import repeat_lr_setting, repeats_setting
from leakgauge.attacks._parts.untransforming import check_policy, policy_setting, undo_setting
from leakgauge.attacks._parts.updates import example_input
from leakgauge.engine import descent
from leakgauge.engine.driving import Minimum, Problem
from leakgauge.engine.randomness import normal
from leakgauge.models.structure import has_kinks
from leakgauge.settings import setting
from leakgauge.types import Attack, DataSpec, Fact, LocalTraining, Observation, Progress, Reconstruction

LAYERS = ("all", "first", "last", "largest")


@dataclass(frozen=True)
class InvertingGradients(Attack):
    """Cosine matching with signed Adam.

    Example: `leakgauge attack inverting-gradients --data digits --model lenet-dlg --steps 500 --trials 4`
    """

    name: ClassVar[str] = "inverting-gradients"
    summary: ClassVar[str] = "match the gradient's direction with signed Adam and total variation"
    paper: ClassVar[str] = "Geiping et al. 2020, Inverting Gradients, NeurIPS"
    needs: ClassVar[frozenset[Fact]] = frozenset({Fact.INPUT_SPEC, Fact.NUM_SAMPLES, Fact.LOCAL_TRAINING})

    steps: int = setting(4800, "optimiser steps per attempt", low=1)
    restarts: int = setting(1, "attempts; the one with the lowest cost is kept, unless they are averaged", low=1)
    schedule: str = setting(
        "halving", "all attempts to the end, the worse half given up early, or all to the end and their mean",
        choices=(*SCHEDULES, AVERAGED),
    )  # fmt: skip
    time_budget: float | None = setting(None, "seconds for all victims together; none unless given", above=0)
    lr: float = setting(0.1, "step length in standard deviations of the data", above=0)
    optimizer: str = setting("adam", "update rule", choices=descent.RULES)
    decay: str = setting(
        "cosine", "how the step length falls: a half cosine, or tenfold at 3/8, 5/8, 7/8", choices=descent.DECAYS
    )
    sign: str = setting(
        "auto", "the image's gradient becomes its sign, hard or soft; auto: soft if the network has kinks, else none",
        choices=("auto", *descent.SIGNS),
    )  # fmt: skip
    boxed: bool = setting(True, "keep pixels in their range")
    tv: float = setting(1e-4, "weight of total variation", low=0)
    distance: str = setting("cosine", "how gradients are compared", choices=("cosine", "l2", "l1", "cosine-each"))
    labels: str = setting("infer", "where hidden labels come from: the last layer or the search", choices=SOURCES)
    layers: str = setting("all", "which tensors are compared", choices=LAYERS)
    layer_count: int = setting(10, "how many tensors, unless all", low=1)
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
    noised_slices: str = slices_setting()
    clients: int = clients_setting()
    assumed_steps: int | None = setting(None, "local steps to unroll, on all samples each; as told unless given", low=1)
    assumed_lr: float | None = setting(None, "local learning rate to unroll with; as told unless given", above=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_policy(self.policy)

    @property
    def rows_per_trial(self) -> int:
        return self.restarts if self.schedule == "halving" else 1

    def numbers_per_row(self, observation: Observation) -> int:
        return numbers_for_replay(self.clipping, observation)

    def reconstruct(self, observation: Observation, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:
        puzzle = self._puzzle(observation)
        sign = self.sign
        if sign == "auto":
            sign = "soft" if has_kinks(observation.model, example_input(observation)) else "none"

        def minimise(problem: Problem, start: Tensor, *, attempts: int, until: float, progress: Progress) -> Minimum:
            return descent.descend(
                problem, start, steps=self.steps, lr=self.lr, rule=self.optimizer, sign=sign, decay=self.decay,
                project=puzzle.boxed if self.boxed else lambda z: z, attempts=attempts, until=until, progress=progress,
            )  # fmt: skip

        def start(some: Sequence[int], attempt: int) -> Tensor:
            return normal(some, f"start/{attempt}", (puzzle.width,)).to(puzzle.like)

        def search(puzzle: Puzzle, start: Start, progress: Progress) -> Reconstruction:
            return solve(
                puzzle, seeds, start=start, minimise=minimise, attempts=self.restarts, schedule=self.schedule,
                settled=lambda value, _: torch.zeros_like(value, dtype=torch.bool),  # every attempt is made
                time_budget=self.time_budget, progress=progress,
            )  # fmt: skip

        found = search_in_slices(self.noised_slices, puzzle, observation, seeds, search, start, progress)
        if self.stretch and found.inputs is not None:
            found = dataclasses.replace(found, inputs=stretched(found.inputs, puzzle))
        return found

    def _puzzle(self, observation: Observation) -> Puzzle:
        """Inputs in standard deviations of the data; the cost without the prior ranks points."""
        data: DataSpec = observation.fact(Fact.INPUT_SPEC)
        like = next(iter(observation.update.tensors.values()))  # device and precision
        flat = [1] * (len(data.shape) - 1)
        mean = like.new_tensor(data.mean or (0.5,)).view(-1, *flat)
        std = like.new_tensor(data.std or (0.25,)).view(-1, *flat)
        labels = searched_labels(observation, self.labels)

        def smooth(_: nn.Module, inputs: Tensor, __: Tensor) -> Tensor:
            return self.tv * mean_variation((inputs - mean) / std)

        puzzle = puzzle_of(
            observation, labels, distance=self.distance, prior=smooth, match_nonzero=self.match_nonzero,
            read_dropout=self.read_dropout, unrolled=self._unrolled(observation),
        )  # fmt: skip
        puzzle = as_told(
            dataclasses.replace(puzzle, prior_counts=False, centre=mean, unit=std), observation, clients=self.clients,
            skip=self.skip, bottleneck=self.bottleneck, unlock=self.unlock, unmix=self.unmix, policy=self.policy,
            undo=self.undo, repeats=self.repeats, repeat_lr=self.repeat_lr, compression=self.compression,
            clipping=self.clipping,
        )  # fmt: skip
        return only(puzzle, choose_layers(puzzle.observed, self.layers, self.layer_count))

    def _unrolled(self, observation: Observation) -> LocalTraining | None:
        """The local steps to replay, as told or as the attacker assumes; None for a single gradient."""
        local: LocalTraining = observation.fact(Fact.LOCAL_TRAINING)
        if local.kind == "fedsgd":
            return None
        if self.assumed_steps is not None:
            local = dataclasses.replace(local, epochs=self.assumed_steps, batch_size=0)
        return local if self.assumed_lr is None else dataclasses.replace(local, lr=self.assumed_lr)


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
