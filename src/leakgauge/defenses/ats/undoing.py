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

from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.defenses.ats.hypotheses import Way, filled_in, gone, originals, visible, ways
from leakgauge.defenses.ats.policy import parse
from leakgauge.engine.randomness import generator
from leakgauge.errors import NotApplicable
from leakgauge.matching.problem import Matching
from leakgauge.types import DataSpec, Fact, Observation

THROUGH, AFTERWARDS = ("through", "afterwards")


def with_policy(problem: Matching, observation: Observation, policy: str, undo: str) -> Matching:
    """The same problem as a search for the pictures before the policy."""
    _require_pictures(problem.shape[1:])
    if problem.finish is not None:
        raise NotApplicable("a transformation policy cannot be searched behind another defense that changes the data")
    if undo == AFTERWARDS:
        data: DataSpec = observation.fact(Fact.INPUT_SPEC)
        return problem.replace(finish=Undoing(problem, policy, data))
    guessing = Transforming(problem, ways(parse(policy)))
    return problem.replace(
        painter=guessing,
        finish=guessing.originals,
        opening=guessing.opening,
        guesses=max(problem.guesses, len(guessing.ways)),
    )


def undone_afterwards(inputs: Tensor, policy: str, data: DataSpec) -> Tensor:
    """(T, N, *sample) as recovered -> the pictures that explain them."""
    _require_pictures(data.shape)
    usual = [sum(values) / len(values) for values in (data.mean or (0.5,), data.std or (0.25,))]
    flat = inputs.detach().flatten(0, 1).nan_to_num().clamp(0, 1)
    return originals(flat, parse(policy), *usual).view_as(inputs)


def _require_pictures(shape: tuple[int, ...]) -> None:
    if len(shape) != 3:
        raise NotApplicable("a transformation policy acts on pictures, and this data is a table; leave it out")


@dataclass(frozen=True)
class Undoing:
    """Makes of what was found the pictures before the policy."""

    plain: Matching  # the problem without a policy
    policy: str
    data: DataSpec

    def __call__(self, z: Tensor) -> tuple[Tensor, Tensor]:
        inputs, logits = self.plain.split(z)
        labels = self.plain.labels if logits is None else logits.argmax(-1)
        assert labels is not None
        return undone_afterwards(inputs, self.policy, self.data), labels


@dataclass(frozen=True)
class Transforming:
    """Makes transformed pictures from z = (pictures, label logits where they are searched for, a guess for each)."""

    plain: Matching  # the problem without a policy
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
        begun[:, self.width - samples : self.width] = guess.to(z)  # what a layer hides stands behind it
        return begun

    def __call__(self, z: Tensor, trials: Tensor | None) -> tuple[Tensor, Tensor | None]:
        pictures, logits = self.plain.split(z[:, : self.plain.visible], trials)
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
