"""Automatic transformation search: the client trains on transformed pictures instead of its own.

Gao et al., "Privacy-preserving collaborative learning with automatic transformation search", CVPR 2021; Drabent et al.
2022 (its replication). A policy is up to three of fifty operations, applied in order to every picture; of a hybrid one
policy is drawn for each. `leakgauge lab search-policy` looks for policies. Labels stay as they are. `as_released` moves
a window of the picture's size by up to four pixels and mirrors half of the pictures first, as the released code does
and the paper does not mention.

How to beat it: the policy is public, because all clients of a model use it; only signs and the choice within a hybrid
are drawn. The update is that of the transformed picture and hides nothing of it. The plain attacker recovers that one
and undoes what it can. The informed attacker searches for the original through the policy, one attempt for each way
chance can have gone, and keeps what explains the update best; or it takes what the plain attacker recovers and looks
for the picture that explains it. What was moved out of the frame is not in the update and cannot come back. Scores
against the client's own picture count that as protection; `psnr_trained_on` shows what leaks of the picture in use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from leakgauge.defenses.ats.operations import Draw, applied, draw, parse, undone
from leakgauge.defenses.ats.undoing import (
    AFTERWARDS,
    THROUGH,
    filled_in,
    undone_afterwards,
    visible,
    ways,
    ways_drawn,
    with_policy,
)
from leakgauge.errors import NotApplicable
from leakgauge.matching.first_layer import FirstLayer
from leakgauge.matching.problem import Matching
from leakgauge.settings import setting
from leakgauge.types import Attack, Batch, DataSpec, Defense, Fact, Observation, SharedUpdate, Step

_PICTURES = 5  # dimensions of a batch of them: trials, samples, channels, height, width


@dataclass(frozen=True)
class ATS(Defense):
    """Example: `--defense ats:policy=3-1-7/43-18-18`"""

    name: ClassVar[str] = "ats"
    summary: ClassVar[str] = "train on pictures that a searched policy has transformed"
    paper: ClassVar[str] = "Gao et al. 2021 (ATS); Drabent et al. 2022"

    policy: str = setting("3-1-7/43-18-18", "operations by number, in order; several policies with slashes between")
    as_released: bool = setting(False, "crop and mirror pictures first, as the released code does")

    def __post_init__(self) -> None:
        super().__post_init__()
        parse(self.policy)

    def wrap(self, step: Step) -> Step:
        def on_transformed(model: nn.Module, batch: Batch, seeds: Sequence[int]) -> SharedUpdate:
            return step(model, self.trained_on(batch, seeds), seeds)

        return on_transformed

    def trained_on(self, batch: Batch, seeds: Sequence[int]) -> Batch:
        pictures = batch.inputs.flatten(0, 1)
        return Batch(applied(pictures, self._drawn(batch.inputs, seeds)).view_as(batch.inputs), batch.labels)

    def undone(self, inputs: Tensor, seeds: Sequence[int]) -> Tensor:
        flat, drawn = inputs.flatten(0, 1), self._drawn(inputs, seeds)
        known = torch.stack([visible(way, *flat.shape[2:]) for way in ways_drawn(drawn)]).to(flat.device)
        return filled_in(undone(flat, drawn), known).view_as(inputs)

    @property
    def guesses(self) -> int:
        return len(ways(parse(self.policy)))

    def ways(self, attack: Attack) -> tuple[str, ...]:
        """The pictures are searched for through the policy, or it is undone afterwards."""
        return (THROUGH, AFTERWARDS) if issubclass(attack.kind, Matching) else super().ways(attack)

    def informs_matching(self, problem: Matching, observation: Observation, way: str) -> Matching:
        return with_policy(problem, observation, self.policy, way)

    def informs_first_layer(self, problem: FirstLayer, observation: Observation, way: str) -> FirstLayer:  # noqa: ARG002
        data: DataSpec = observation.fact(Fact.INPUT_SPEC)
        return problem.replace(undo=lambda inputs: undone_afterwards(inputs, self.policy, data))

    def _drawn(self, inputs: Tensor, seeds: Sequence[int]) -> Draw:
        if inputs.dim() != _PICTURES:
            raise NotApplicable("ats transforms pictures, and this data is a table; use a defense that adds noise")
        return draw(parse(self.policy), seeds, inputs.shape[1], as_released=self.as_released).to(inputs.device)
