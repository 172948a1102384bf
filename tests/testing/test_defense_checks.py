"""A defense that holds to the contract passes, and one that breaks it is told how in one line."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import nn

from leakgauge.defenses.gaussian import Gaussian
from leakgauge.matching.problem import Matching
from leakgauge.settings import setting
from leakgauge.testing import check_defense
from leakgauge.types import Batch, Defense, Guarantee, Observation, SharedUpdate, Step


@dataclass(frozen=True)
class Secret(Defense):
    """Example: `longer:more=3`"""

    name: ClassVar[str] = "longer"
    summary: ClassVar[str] = "send the update times a number"
    paper: ClassVar[str] = "nobody 2024"
    more: float = setting(1.0, "how much is added, in lengths of the update", low=0)

    def wrap(self, step: Step) -> Step:
        if self.idle:
            return step
        return lambda model, batch, seeds: self.changed(step(model, batch, seeds), seeds)

    def changed(self, update: SharedUpdate, seeds: Sequence[int]) -> SharedUpdate:
        return update.map(lambda _, t: (1 + self.more) * t)

    @property
    def idle(self) -> bool:
        return self.more == 0


class Longer(Secret):
    """Example: `longer:more=3`"""

    def informs_matching(self, problem: Matching, observation: Observation, way: str) -> Matching:
        return problem.replace(observed={name: g / (1 + self.more) for name, g in problem.observed.items()})


class Unexampled(Longer):
    """Says nothing of how to call it."""


class AlwaysOn(Longer):
    """Example: `always-on`"""

    def wrap(self, step: Step) -> Step:
        return lambda model, batch, seeds: self.changed(step(model, batch, seeds), seeds).map(lambda _, t: t + 1)


class NeverIdle(Longer):
    """Example: `never-idle`"""

    idle = False


class Dice(Longer):
    """Example: `dice`"""

    def changed(self, update: SharedUpdate, seeds: Sequence[int]) -> SharedUpdate:
        return update.map(lambda _, t: t + torch.rand(t.shape))


class Neighbourly(Longer):
    """Example: `neighbourly`"""

    def changed(self, update: SharedUpdate, seeds: Sequence[int]) -> SharedUpdate:
        return update.map(lambda _, t: t * len(seeds))


class Overheard(Longer):
    """Example: `overheard`"""

    def changed(self, update: SharedUpdate, seeds: Sequence[int]) -> SharedUpdate:
        return update.map(lambda _, t: t * max(seeds) if len(seeds) == 2 else t)


class Renaming(Longer):
    """Example: `renaming`"""

    def changed(self, update: SharedUpdate, seeds: Sequence[int]) -> SharedUpdate:
        return dataclasses.replace(update, tensors={f"{name}x": t for name, t in update.tensors.items()})


class InPlace(Longer):
    """Example: `in-place`"""

    def changed(self, update: SharedUpdate, seeds: Sequence[int]) -> SharedUpdate:
        return update.map(lambda _, t: t.mul_(1 + self.more))


class Bleaching(Longer):
    """Example: `bleaching`"""

    def wrap(self, step: Step) -> Step:
        def bleached(model: nn.Module, batch: Batch, seeds: Sequence[int]) -> SharedUpdate:
            if not self.idle:
                batch.inputs.clamp_(max=0.4)
            return step(model, batch, seeds)

        return bleached


class Promising(Longer):
    """Example: `promising`"""

    def guarantee(self) -> Guarantee:
        return Guarantee(-1.0, 1e-5, "sample")


class Summing(Longer):
    """Example: `summing`"""

    def aggregate(self, updates: SharedUpdate) -> SharedUpdate:
        return updates


class SameProblem(Longer):
    """Example: `same-problem`"""

    def informs_matching(self, problem: Matching, observation: Observation, way: str) -> Matching:
        return problem


class Rewriting(Longer):
    """Example: `rewriting`"""

    def informs_matching(self, problem: Matching, observation: Observation, way: str) -> Matching:
        found = super().informs_matching(problem, observation, way)
        object.__setattr__(problem, "observed", found.observed)
        return found


class OtherKind(Longer):
    """Example: `other-kind`"""

    def informs_matching(self, problem: Matching, observation: Observation, way: str) -> Matching:
        return Matching(**vars(problem))


HELD = {"longer": Longer, "gaussian, stronger": Gaussian(std=0.1)}


@pytest.mark.parametrize("defense", HELD.values(), ids=HELD)
def test_a_defense_that_holds_to_it_passes(defense: type[Defense] | Defense) -> None:
    check_defense(defense)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (Unexampled, "longer: the docstring has no line that starts with 'Example:'"),
        (AlwaysOn, "longer: longer:more=0.0 changes the update: .*weight: entries differ, by 1 at most"),
        (NeverIdle, "longer: longer:more=0.0 does nothing, and `idle` does not say so"),
        (Dice, "longer: draws from torch's global generator"),
        (Neighbourly, "longer: client 0 alone and among others, .*entries differ"),
        (Overheard, "longer: .* of a client depends on another's seed: entries differ"),
        (Renaming, "longer: names or shapes change"),
        (InPlace, "longer changes the update that it wraps"),
        (Bleaching, "longer changes the samples"),
        (Promising, "longer: promises epsilon -1, which is not above zero"),
        (Summing, "longer: `aggregate` does not make one update"),
        (Secret, "longer: says for no kind of problem how it is beaten; write informs_matching"),
        (SameProblem, "longer: dlg is said to be informed and its problem stays the same"),
        (Rewriting, "longer: informing dlg changes the problem instead of making another"),
        (OtherKind, "longer: of the problem of dlg it makes a Matching"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_broken_defense_is_told_in_one_line(broken: type[Defense], said: str) -> None:
    with pytest.raises(AssertionError, match=f"^{said}") as caught:
        check_defense(broken)
    assert "\n" not in str(caught.value)
