"""An attack that holds to the contract passes, and one that breaks it is told how in one line."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import pytest
import torch

from leakgauge.settings import setting
from leakgauge.testing import check_attack
from leakgauge.types import Attack, Fact, Observation, Progress, Reconstruction


@dataclass(frozen=True)
class Grey(Attack):
    """Example: `grey:brightness=0.25`"""

    name: ClassVar[str] = "grey"
    summary: ClassVar[str] = "claim that every picture is grey"
    paper: ClassVar[str] = "nobody 2024"
    needs: ClassVar[frozenset[Fact]] = frozenset({Fact.INPUT_SPEC, Fact.NUM_SAMPLES})
    brightness: float = setting(0.5, "how bright the grey is", low=0, high=1)

    def solve(self, problem: Observation, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:
        shape = (len(seeds), problem.fact(Fact.NUM_SAMPLES), *problem.fact(Fact.INPUT_SPEC).shape)
        none = torch.zeros(len(seeds), dtype=torch.long)
        return Reconstruction(torch.full(shape, self.brightness), None, torch.ones(len(seeds)), none, none)


class Wordless(Grey):
    summary: ClassVar[str] = ""


class NoExample(Grey):
    """Says nothing of how to call it."""


@dataclass(frozen=True)
class Unexplained(Grey):
    """Example: `unexplained`"""

    more: int = field(default=1, metadata={"low": None, "above": None, "high": None, "choices": ()})


class Infinite(Grey):
    """Example: `infinite`"""

    def solve(self, problem: Observation, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:
        found = super().solve(problem, seeds, progress)
        return replace(found, inputs=found.inputs / 0)


class Mute(Grey):
    """Example: `mute`"""

    def solve(self, problem: Observation, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:
        return replace(super().solve(problem, seeds, progress), inputs=None)


class FarLabels(Grey):
    """Example: `far-labels`"""

    def solve(self, problem: Observation, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:
        return replace(super().solve(problem, seeds, progress), labels=torch.full((len(seeds), 1), 10))


class FlatObjective(Grey):
    """Example: `flat-objective`"""

    def solve(self, problem: Observation, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:
        return replace(super().solve(problem, seeds, progress), objective=torch.ones(len(seeds), 1))


class Dice(Grey):
    """Example: `dice`"""

    def solve(self, problem: Observation, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:
        found = super().solve(problem, seeds, progress)
        own = torch.Generator()
        own.seed()
        return replace(found, inputs=torch.rand(found.inputs.shape, generator=own))


class Seeding(Grey):
    """Example: `seeding`"""

    def solve(self, problem: Observation, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:
        torch.manual_seed(sum(seeds))
        return super().solve(problem, seeds, progress)


class NumPys(Grey):
    """Example: `numpys`"""

    def solve(self, problem: Observation, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:
        np.random.rand()
        return super().solve(problem, seeds, progress)


class Neighbourly(Grey):
    """Example: `neighbourly`"""

    def solve(self, problem: Observation, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:
        found = super().solve(problem, seeds, progress)
        return replace(found, inputs=found.inputs * len(seeds))


class Heavy(Grey):
    """Example: `heavy`"""

    def solve(self, problem: Observation, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:
        with torch.no_grad():
            next(problem.model.parameters()).mul_(2)
        return super().solve(problem, seeds, progress)


class Bleaching(Grey):
    """Example: `bleaching`"""

    needs: ClassVar[frozenset[Fact]] = Grey.needs | {Fact.PUBLIC_DATA}

    def solve(self, problem: Observation, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:
        problem.fact(Fact.PUBLIC_DATA).inputs.clamp_(max=0.4)
        return super().solve(problem, seeds, progress)


class Switching(Grey):
    """Example: `switching`"""

    def solve(self, problem: Observation, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:
        problem.model.eval()
        return super().solve(problem, seeds, progress)


def test_an_attack_that_holds_to_it_passes_as_a_class_and_with_settings_of_its_own() -> None:
    check_attack(Grey)
    check_attack(Grey(brightness=0.25), models=("mlp:hidden=8",))


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (Wordless, "Wordless: summary is missing; set it in the class body"),
        (NoExample, "grey: the docstring has no line that starts with 'Example:'"),
        (Unexplained, "grey: more has no help; declare it with setting"),
        (Infinite, "grey: inputs hold nan or infinity"),
        (Mute, "grey: claims neither inputs nor labels"),
        (FarLabels, "grey: labels reach from 10 to 10, of 10 classes"),
        (FlatObjective, r"grey: objective is \(3, 1\) and not \(3,\)"),
        (Dice, "grey: run again, inputs: entries differ"),
        (Seeding, "grey: draws from torch's global generator; use leakgauge.engine.randomness"),
        (NumPys, "grey: draws from NumPy's global generator"),
        (Neighbourly, "grey: trial 0 alone and among others, inputs: entries differ, by 1 at most"),
        (Heavy, r"grey changes the model it is given: .*weight: entries differ"),
        (Bleaching, "grey changes the fact public-data: inputs: entries differ, by 0.6 at most"),
        (Switching, "grey switches the model it is given to another mode"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_broken_attack_is_told_in_one_line(broken: type[Attack], said: str) -> None:
    with pytest.raises(AssertionError, match=f"^{said}") as caught:
        check_attack(broken)
    assert "\n" not in str(caught.value)


def test_an_attack_that_fits_no_model_is_told_why() -> None:
    from leakgauge.attacks.linear import Linear

    with pytest.raises(AssertionError, match=r"linear fits none of lenet-dlg:filters=4 .*first layer"):
        check_attack(Linear, models=("lenet-dlg:filters=4",))
