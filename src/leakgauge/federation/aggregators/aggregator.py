"""What every aggregator offers: a weight for each client, and the step that the global model takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.settings import Settings
from leakgauge.types import SharedUpdate


@dataclass(frozen=True)
class Reported:
    """What is known of a round's T clients when they are weighed."""

    samples: Tensor  # (T,) float64, samples that each trained on
    weighting: str  # "equal" or "samples": what the federation asks for
    training: Tensor | None = None  # (T,) each local model on its own training samples, as its client says
    validation: Tensor | None = None  # (T, T) model i on the samples that client j kept back, as client j says
    clients: Tensor | None = None  # (T,) int64, their numbers in the federation, for what is remembered of them


@dataclass(frozen=True)
class Aggregator(Settings):
    """One way to make the next global model. Override what applies; a property may become a field of that name."""

    paper: ClassVar[str]
    cross_validates: ClassVar[bool] = False  # True if clients try each other's models
    remembers: ClassVar[bool] = False  # True if `step` keeps something between rounds: who opens the mean keeps it

    @property
    def validation(self) -> float:
        """Share of each client's samples that it does not train on."""
        return 0.0

    @property
    def metric(self) -> str:
        """What clients report of a model where they try each other's: "loss" or "accuracy"."""
        return "loss"

    @property
    def every(self) -> int:
        """Clients try each other's models in every so many rounds, from the first on, where they try them at all."""
        return 1

    @property
    def mixing(self) -> float:
        """Least share of a client's own update in the model that others try; 1 where they try the update itself."""
        return 1.0

    def mixing_weights(self, reported: Reported, memory: Mapping[str, Tensor], g: torch.Generator) -> Tensor | None:  # noqa: ARG002
        """(T, T) float64, how much of each update is in what others try for each client; None where nothing is mixed.

        The server makes them anew in every round and tells nobody. Nothing is tried yet, so `reported` has no results.
        """
        return None

    def weights(self, reported: Reported) -> Tensor:
        """(T,) non-negative, with the sum 1."""
        share = reported.samples if reported.weighting == "samples" else torch.ones_like(reported.samples)
        return share / share.sum()

    def weigh(self, reported: Reported, memory: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """The weights, and what is remembered for the next round, by clients' numbers; `step` gets it next.

        `memory` is empty in the first round. Override this instead of `weights` where shares are remembered.
        """
        return self.weights(reported), dict(memory)

    def step(self, mean: SharedUpdate, memory: Mapping[str, Tensor]) -> tuple[SharedUpdate, dict[str, Tensor]]:
        """What is applied to the global model, and what is remembered for the next round; all (1, ...).

        `memory` is empty in the first round.
        """
        return mean, dict(memory)
