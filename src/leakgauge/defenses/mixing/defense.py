"""Mixing (FedBoosting's fusion): clients try mixtures of each other's updates instead of the updates themselves.

Ren 2022, section 4.2.3 and Eq. 4.5, and see `leakgauge.defenses.mixing.weights` for the three ways to share a mixture
out. It is a protection among clients. The server of the paper sees ciphertexts; every client holds the key, tries every
mixture of its round, and is the attacker here. `clients` of them train apart, with the other defenses of the chain
acting at each; the first is the victim, the last the attacker, and the samples of the others are nobody's target.

It is not differential privacy: its randomness is not calibrated to anything and nothing is accounted for.

How to beat it: T mixtures are T equations. An attacker who knows the weights (`known=true`, and always with
`fusing=fixed`, where the protocol says them) solves them. One who does not reads them off the zeros of ReLU networks,
or takes the middle of what they may be (see `leakgauge.defenses.mixing.guessing_weights`). An attacker who does not
know the defense takes the victim's mixture for its update. Only what several mixtures say together is used; earlier
rounds are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.defenses.mixing.guessing_weights import guessed_weights
from leakgauge.defenses.mixing.weights import FUSINGS, along_clients, check_fusing, fusing_weights
from leakgauge.engine.randomness import per_trial
from leakgauge.matching.first_layer import LEAST_SQUARES, FirstLayer
from leakgauge.matching.problem import Matching
from leakgauge.settings import setting
from leakgauge.types import Attack, Defense, Observation, SharedUpdate


@dataclass(frozen=True)
class Mixing(Defense):
    """Example: `--defense mixing:clients=4,known=true`"""

    name: ClassVar[str] = "mixing"
    summary: ClassVar[str] = "show other clients mixtures of updates; attacked by a fellow client"
    paper: ClassVar[str] = "Ren et al. 2022, FedBoosting; Ren 2022, section 4.2.3"

    clients: int = setting(3, "clients of a round, the victim and the attacker among them", low=2)
    share: float = setting(
        0.5,
        "least share of a client's own update in its mixture; the paper's experiments have 0.9 for everybody",
        above=0,
        high=0.9999,
    )
    fusing: str = setting(
        "random",
        "whose shares: own ones drawn in private and the rest in equal parts (random), in drawn parts (free), or share "
        "for everybody as released (fixed)",
        choices=FUSINGS,
    )
    known: bool = setting(False, "the attacker knows the weights; with fixed ones it always does")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fusing("mixing: share", self.share, self.fusing)

    @property
    def fellows(self) -> int:
        return self.clients - 1

    def received(self, updates: SharedUpdate, seeds: Sequence[int], informed: bool) -> SharedUpdate:
        weights = per_trial(
            seeds, "fusing", lambda g: fusing_weights(self.clients, self.share, self.fusing, g)
        )  # (T, M, M)
        mixtures = along_clients(updates, weights)
        if not informed:
            return _first(mixtures, self.clients)
        if not (self.known or self.fusing == "fixed"):
            own, groups = _rows(updates, self.clients)[:, -1], _rows(mixtures, self.clients)
            weights = guessed_weights(groups, own, self.fusing, self.share)[0]
        return along_clients(mixtures, torch.linalg.inv(weights)[:, :1])

    def ways(self, attack: Attack) -> tuple[str, ...]:
        """Where weights are guessed an update may come out with a wrong scale, so that is left open.

        With the right weights the attack stays as it is: what it sees is the update itself.
        """
        if self.known or self.fusing == "fixed" or not self.has_rule_for(type(attack)):
            return ()
        return ("",) if issubclass(attack.kind, FirstLayer) or "scaled" in getattr(attack, "distances", ()) else ()

    def informs_matching(self, problem: Matching, observation: Observation, way: str) -> Matching:  # noqa: ARG002
        return problem.replace(distance="scaled") if "scaled" in problem.distances else problem

    def informs_first_layer(self, problem: FirstLayer, observation: Observation, way: str) -> FirstLayer:  # noqa: ARG002
        return problem.replace(combine=LEAST_SQUARES)  # whatever the scale of the whole


def _first(mixtures: SharedUpdate, clients: int) -> SharedUpdate:
    return mixtures.take(range(0, len(next(iter(mixtures.tensors.values()))), clients))


def _rows(updates: SharedUpdate, clients: int) -> Tensor:
    """(T, M, P): all tensors of each client in a row."""
    flat = torch.cat([t.detach().flatten(1) for t in updates.tensors.values()], 1)
    return flat.view(-1, clients, flat.shape[1])
