"""Automatic transformation search: the client trains on transformed pictures instead of its own.

Gao et al., "Privacy-preserving collaborative learning with automatic transformation search", CVPR 2021; Drabent et al.
2022 (its replication). A policy is up to three of fifty operations, applied in order to every picture; of a hybrid one
policy is drawn for each. `leakgauge lab search-policy` looks for policies. Labels stay as they are.

`as_released` moves a window of the picture's size by up to four pixels and mirrors half of the pictures first, which
the released code does and the paper does not mention.

How to beat it: the policy is public, because all clients of a model use it, and only signs and the choice among the
policies of a hybrid are drawn. The update is that of the transformed picture and hides nothing of it. So the plain
attacker recovers that one, as well as ever, and undoes what it can. The informed attacker searches for the original
through the policy, one attempt for each way chance can have gone, and keeps what explains the update best; or takes
what the plain attacker recovers and looks for the picture that explains it. What was
moved out of the frame is not in the update and cannot come back. Scores against the client's own picture count that as
protection; `psnr_trained_on` shows what the update gives away of the picture that was used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from leakgauge.defenses.ats.hypotheses import filled_in, visible, ways, ways_drawn
from leakgauge.defenses.ats.policy import Draw, applied, draw, parse, undone
from leakgauge.errors import NotApplicable
from leakgauge.settings import setting
from leakgauge.types import Attack, Batch, Defense, SharedUpdate, Step

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

    def adaptive(self, attack: Attack) -> tuple[Attack, ...]:
        guesses = len(ways(parse(self.policy)))
        attempts = max(guesses, getattr(attack, "restarts", 1))
        afterwards = attack.with_fields(policy=self.policy, undo="afterwards")
        if afterwards is None:  # attacks that cannot search through a policy undo it afterwards
            afterwards = attack.with_fields(policy=self.policy)
            return (afterwards,) if afterwards else ()
        through = attack.with_fields(policy=self.policy)
        if guesses > 1:
            through = attack.with_fields(policy=self.policy, restarts=attempts, schedule="halving")
            through = through or attack.with_fields(policy=self.policy, restarts=attempts)
        return tuple(informed for informed in (through, afterwards) if informed)

    def _drawn(self, inputs: Tensor, seeds: Sequence[int]) -> Draw:
        if inputs.dim() != _PICTURES:
            raise NotApplicable("ats transforms pictures, and this data is a table; use gaussian or dp-sgd instead")
        drawn = draw(parse(self.policy), seeds, inputs.shape[1], as_released=self.as_released)
        return drawn.to(inputs.device)
