"""The picture before its transformation, for an attacker who knows the policy but not what chance did to the picture:
which policy of a hybrid, which signs.

through
: It is searched for through the policy. Each attempt stands for one guess, carried in z as a number that nothing moves,
  and the attempt that explains the update best is kept. With more than one picture behind an update the guesses of an
  attempt are drawn at random for each of them.

afterwards
: The transformed picture is recovered first, as if there were no policy, and then the picture that explains it.

Either way, pixels that were moved out of the frame have no part in the update and are filled in from their neighbours.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.defenses.ats.hypotheses import Way, filled_in, gone, originals, visible, ways
from leakgauge.defenses.ats.policy import parse
from leakgauge.engine.randomness import generator
from leakgauge.errors import NotApplicable
from leakgauge.matching.problem import Puzzle
from leakgauge.settings import setting
from leakgauge.types import DataSpec, Fact, Observation

THROUGH, AFTERWARDS = WHEN = ("through", "afterwards")


def policy_setting() -> str:
    """The field by which an attack is told."""
    field: str = setting("", "search for pictures behind this transformation policy, such as 3-1-7/43-18-18")
    return field


def undo_setting() -> str:
    """The field that says when."""
    field: str = setting(
        THROUGH, "undo the policy by a search through it, or afterwards on what was recovered", choices=WHEN
    )
    return field


def check_policy(policy: str) -> None:
    """Refuses what no search could use, when the attack is named and not when its turn comes."""
    if policy:
        parse(policy)


def with_policy(puzzle: Puzzle, observation: Observation, policy: str, undo: str) -> Puzzle:
    """The same puzzle as a search for the pictures before the policy."""
    if not policy:
        return puzzle
    _require_pictures(puzzle.shape[1:])
    if puzzle.painter is not None:
        raise NotApplicable("a transformation policy cannot be searched behind another defence that changes the data")
    if undo == AFTERWARDS:
        data: DataSpec = observation.fact(Fact.INPUT_SPEC)
        return dataclasses.replace(puzzle, finish=lambda z: _finished(puzzle, z, policy, data))
    guessing = Transforming(puzzle, ways(parse(policy)))
    return dataclasses.replace(puzzle, painter=guessing, finish=guessing.originals, opening=guessing.opening)


def undone_afterwards(inputs: Tensor, policy: str, data: DataSpec) -> Tensor:
    """(T, N, *sample) as recovered -> the pictures that explain them; as they are where no policy is known."""
    if not policy:
        return inputs
    _require_pictures(data.shape)
    usual = [sum(values) / len(values) for values in (data.mean or (0.5,), data.std or (0.25,))]
    flat = inputs.detach().flatten(0, 1).nan_to_num().clamp(0, 1)
    return originals(flat, parse(policy), *usual).view_as(inputs)


def _finished(puzzle: Puzzle, z: Tensor, policy: str, data: DataSpec) -> tuple[Tensor, Tensor]:
    inputs, logits = puzzle.split(z)
    labels = puzzle.labels if logits is None else logits.argmax(-1)
    assert labels is not None
    return undone_afterwards(inputs, policy, data), labels


def _require_pictures(shape: tuple[int, ...]) -> None:
    if len(shape) != 3:
        raise NotApplicable("a transformation policy acts on pictures, and this data is a table; leave it out")


@dataclass(frozen=True)
class Transforming:
    """Makes transformed pictures from z = (pictures, label logits where they are searched for, a guess for each)."""

    plain: Puzzle  # the puzzle without a policy
    ways: tuple[Way, ...]

    @property
    def width(self) -> int:
        return self.plain.visible + self.plain.shape[0]

    def opening(self, z: Tensor, attempt: int) -> Tensor:
        """The start of an attempt with its guesses: one picture goes through all ways in turn."""
        samples = self.plain.shape[0]
        guess = torch.full((samples,), attempt % len(self.ways))
        if samples > 1:
            guess = torch.randint(len(self.ways), (samples,), generator=generator(attempt, "guess"))
        begun = z.clone()
        begun[:, -samples:] = guess.to(z)
        return begun

    def __call__(self, z: Tensor, trials: Tensor | None) -> tuple[Tensor, Tensor | None]:  # noqa: ARG002
        pictures, logits = self.plain.split(z[:, : self.plain.visible])
        flat = pictures.flatten(0, 1)
        which = self._guesses(z).flatten()
        every = torch.stack([gone(flat, way) for way in self.ways])  # a choice by value would wait for the device
        chosen = every[which, torch.arange(len(flat), device=flat.device)]
        return chosen.view_as(pictures), logits

    def originals(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Pictures before the policy (T, N, *shape), unseen pixels filled in, and labels (T, N)."""
        pictures, logits = self.plain.split(z[:, : self.plain.visible])
        labels = self.plain.labels if logits is None else logits.argmax(-1)
        assert labels is not None
        height, width = pictures.shape[-2:]
        masks = torch.stack([visible(way, height, width) for way in self.ways]).to(z.device)
        flat = pictures.flatten(0, 1).nan_to_num().clamp(0, 1)
        return filled_in(flat, masks[self._guesses(z).flatten()]).view_as(pictures), labels

    def _guesses(self, z: Tensor) -> Tensor:
        """(A, N); an attempt that came to nothing has none and is given the first."""
        guess = z.detach()[:, -self.plain.shape[0] :].nan_to_num().round().long()
        return guess.clamp(0, len(self.ways) - 1)
