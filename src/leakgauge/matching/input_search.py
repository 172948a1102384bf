"""What `inverting-gradients` and `portfolio` share: first-order searches in units of the data, ranked without prior."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from leakgauge.matching.clipping import clipping_setting, numbers_for_replay
from leakgauge.matching.compression import compression_setting
from leakgauge.matching.hidden_noise import bottleneck_setting
from leakgauge.matching.informed import as_told
from leakgauge.matching.labels import SOURCES, searched_labels
from leakgauge.matching.muting import skip_setting
from leakgauge.matching.priors import mean_variation
from leakgauge.matching.problem import Prior, Puzzle, puzzle_of
from leakgauge.matching.robust_slices import slices_setting
from leakgauge.matching.stretching import stretch_setting
from leakgauge.matching.sum_of_clients import clients_setting
from leakgauge.matching.unlocking import unlock_setting
from leakgauge.matching.unmixing import unmix_setting
from leakgauge.matching.unrolling import repeat_lr_setting, repeats_setting
from leakgauge.matching.untransforming import check_policy, policy_setting, undo_setting
from leakgauge.matching.updates import example_input
from leakgauge.models.structure import has_kinks
from leakgauge.settings import setting
from leakgauge.types import Attack, DataSpec, Fact, LocalTraining, Observation


@dataclass(frozen=True)
class InputSearch(Attack):
    """Fields and problem of attacks that descend in the inputs."""

    steps: int = setting(4800, "optimiser steps per attempt", low=1)
    time_budget: float | None = setting(None, "seconds for all victims together; none unless given", above=0)
    lr: float = setting(0.1, "step length in standard deviations of the data", above=0)
    boxed: bool = setting(True, "keep pixels in their range")
    labels: str = setting("infer", "where hidden labels come from: the last layer or the search", choices=SOURCES)
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

    def numbers_per_row(self, observation: Observation) -> int:
        return numbers_for_replay(self.clipping, observation)

    def puzzle(self, observation: Observation, distance: str, tv: float) -> Puzzle:
        """Inputs in standard deviations of the data; the distance without the prior ranks points."""
        data: DataSpec = observation.fact(Fact.INPUT_SPEC)
        like = next(iter(observation.update.tensors.values()))  # device and precision
        flat = [1] * (len(data.shape) - 1)
        mean = like.new_tensor(data.mean or (0.5,)).view(-1, *flat)
        std = like.new_tensor(data.std or (0.25,)).view(-1, *flat)
        puzzle = puzzle_of(
            observation,
            searched_labels(observation, self.labels),
            distance=distance,
            prior=smooth(tv, mean, std),
            match_nonzero=self.match_nonzero,
            read_dropout=self.read_dropout,
            unrolled=self._unrolled(observation),
        )
        return as_told(
            dataclasses.replace(puzzle, prior_counts=False, centre=mean, unit=std),
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

    def _unrolled(self, observation: Observation) -> LocalTraining | None:
        """The local steps to replay, as told or as the attacker assumes; None for a single gradient."""
        local: LocalTraining = observation.fact(Fact.LOCAL_TRAINING)
        if local.kind == "fedsgd":
            return None
        if self.assumed_steps is not None:
            local = dataclasses.replace(local, epochs=self.assumed_steps, batch_size=0)
        return local if self.assumed_lr is None else dataclasses.replace(local, lr=self.assumed_lr)


def smooth(tv: float, mean: Tensor, std: Tensor) -> Prior:
    """Total variation in standard deviations of the data, with this weight."""

    def prior(_: nn.Module, inputs: Tensor, __: Tensor) -> Tensor:
        return tv * mean_variation((inputs - mean) / std)

    return prior


def sign_for(observation: Observation) -> str:
    """What becomes of an image's gradient before a step: its soft sign behind kinks, itself on a smooth network."""
    return "soft" if has_kinks(observation.model, example_input(observation)) else "none"


def all_attempts(value: Tensor, _: Tensor) -> Tensor:
    """Nothing settles a trial before its last attempt."""
    return torch.zeros_like(value, dtype=torch.bool)
