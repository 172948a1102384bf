"""The picture before its transformation, for an attacker who knows the policy but not what chance did to the picture:
which policy of a hybrid, which sign each operation had. The crop and the mirror of the released code are left out: they
are 162 more for each, and a picture moved by at most four pixels is a picture all the same.

through
: It is searched for through the policy. Each attempt stands for one guess, carried in z as a number that nothing moves,
  and the attempt that explains the update best is kept. With more than one picture behind an update the guesses of an
  attempt are drawn at random for each of them.

afterwards
: The transformed picture is recovered first, as if there were no policy, and then the picture that explains it.

Either way, pixels that were moved out of the frame have no part in the update and are filled in from their neighbours.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.defenses.ats.operations import NOTHING, OPERATIONS, Draw, Operation, Triple, parse
from leakgauge.engine.randomness import generator
from leakgauge.errors import NotApplicable
from leakgauge.matching.problem import Matching
from leakgauge.types import DataSpec, Fact, Observation

Way = tuple[tuple[Operation, int], ...]  # operations in order, each with its sign

_STEPS = 80  # of Adam, towards a picture that explains what came out
_STEP = 0.02
_EXACT = 0.05  # of a recovered pixel
_ROUNDS = 64  # of spreading into what is unseen: enough to cross half of a small picture
THROUGH, AFTERWARDS = ("through", "afterwards")


def ways(policies: Sequence[Triple]) -> tuple[Way, ...]:
    """The different ways a picture can have gone, in the order of the policies."""
    found: dict[Way, None] = {}
    for triple in policies:
        operations = [op for op in (OPERATIONS[index] for index in triple) if not op.changes_nothing]
        for signs in itertools.product(*((1, -1) if op.signed else (1,) for op in operations)):
            found[tuple(zip(operations, signs, strict=True))] = None
    return tuple(found)


def ways_drawn(drawn: Draw) -> list[Way]:
    """For each picture the way it went."""
    rows = (zip(*row, strict=True) for row in zip(drawn.operations.tolist(), drawn.signs.tolist(), strict=True))
    return [tuple((OPERATIONS[number], sign) for number, sign in row if number != NOTHING) for row in rows]


def gone(pictures: Tensor, way: Way) -> Tensor:
    """(M, C, H, W) in [0, 1], all of them that way; differentiable, and nothing waits for the device."""
    for operation, sign in way:
        pictures = operation(pictures, torch.full((len(pictures),), sign, device=pictures.device))
    return pictures


def originals(pictures: Tensor, policies: Sequence[Triple], mean: float = 0.45, spread: float = 0.25) -> Tensor:
    """What (M, C, H, W) that came out of a policy were before: for each the likeliest way, undone.

    For every way a picture is sought that goes there. What is left over tells the ways apart, and so does what they
    make of the picture: a black band is better explained by a shift than by a picture that had one. Pixels are taken
    for normal with `mean` and `spread`, and a recovered picture for as exact as 26 dB.
    """
    possible = ways(policies)
    with torch.no_grad():
        back = torch.stack([_undone(pictures, way) for way in possible]).clamp(0, 1)  # (W, M, C, H, W)
    best = back.clone().requires_grad_()
    adam = torch.optim.Adam([best], lr=_STEP)
    for _ in range(_STEPS):
        adam.zero_grad()
        with torch.enable_grad():
            _left_over(best, pictures, possible).sum().backward()  # type: ignore[no-untyped-call]
        adam.step()
        with torch.no_grad():
            best.clamp_(0, 1)
    masks = torch.stack([visible(way, *pictures.shape[2:]) for way in possible]).to(pictures.device)  # (W, H, W')
    with torch.no_grad():
        left = torch.stack([_left_over(found, pictures, possible) for found in (best, back)])  # (2, W, M)
        found = torch.where((left[0] < left[1])[..., None, None, None], best, back)
        unlikely = ((found - mean) / spread).square() / 2 + math.log(spread / _EXACT)
        stretched = torch.tensor([_log_volume(way) for way in possible]).to(pictures)
        unlikely = (unlikely + stretched.view(-1, 1, 1, 1, 1)) * masks[:, None, None]
        chosen = (left.amin(0) / (2 * _EXACT**2) + unlikely.sum((2, 3, 4))).argmin(0)
    return filled_in(found[chosen, torch.arange(len(pictures), device=pictures.device)].detach(), masks[chosen])


def _left_over(found: Tensor, pictures: Tensor, possible: Sequence[Way]) -> Tensor:
    """(W, M): squared differences between what each would have become and what came out, added up."""
    became = torch.stack([gone(x, way) for x, way in zip(found, possible, strict=True)])
    return (became - pictures).square().flatten(2).sum(2)


def _log_volume(way: Way) -> float:
    """By how much a way pulls pixels apart, as the logarithm of a factor: what is squeezed together is likelier."""
    whole = {"contrast": 1.0, "brightness": 1.0, "color": 2 / 3}  # of three channels the grey one stays
    return sum(whole.get(operation.kind, 0.0) * math.log(operation.factor(sign)) for operation, sign in way)


def _undone(pictures: Tensor, way: Way) -> Tensor:
    for operation, sign in reversed(way):
        pictures = operation.undone(pictures, torch.full((len(pictures),), sign, device=pictures.device))
    return pictures


def visible(way: Way, height: int, width: int) -> Tensor:
    """(H, W), True where a pixel of the original has a part in what comes out: the rest was moved out of the frame."""
    original = torch.rand(1, 1, height, width, generator=torch.Generator().manual_seed(0)) * 0.5 + 0.25
    original.requires_grad_()
    moved = gone(original, tuple((operation, sign) for operation, sign in way if operation.moves_pixels))
    (slope,) = torch.autograd.grad(moved.sum(), original)
    return slope[0, 0] != 0


def filled_in(pictures: Tensor, known: Tensor) -> Tensor:
    """(M, C, H, W), with pixels that are not `known` (M, H, W) spread smoothly from those that are."""
    mask = known[:, None].to(pictures)
    kernel = torch.ones(1, 1, 3, 3).to(pictures)
    flat = (pictures * mask).flatten(0, 1)[:, None]  # every channel a picture of its own
    weight = mask.expand_as(pictures).flatten(0, 1)[:, None]
    begun, reached = flat, weight
    for _ in range(_ROUNDS):
        total = torch.nn.functional.conv2d(begun * reached, kernel, padding=1)
        parts = torch.nn.functional.conv2d(reached, kernel, padding=1)
        begun = torch.where(weight > 0, flat, total / parts.clamp_min(1e-12))
        reached = (parts > 0).to(pictures)
    return begun.view_as(pictures)


def with_policy(problem: Matching, observation: Observation, policy: str, undo: str) -> Matching:
    """The same problem as a search for the pictures before the policy."""
    _require_pictures(problem.shape[1:])
    if problem.finish is not None:
        raise NotApplicable("a transformation policy cannot be searched behind another defense that changes the data")
    if undo == AFTERWARDS:
        data: DataSpec = observation.fact(Fact.INPUT_SPEC)
        return problem.replace(finish=Undoing(problem, policy, data))
    guessing = Transforming(problem, ways(parse(policy)))
    hooks = {"painter": guessing, "finish": guessing.originals, "opening": guessing.opening}
    return problem.replace(guesses=max(problem.guesses, len(guessing.ways)), **hooks)


def undone_afterwards(inputs: Tensor, policy: str, data: DataSpec) -> Tensor:
    """(T, N, *sample) as recovered -> the pictures that explain them."""
    _require_pictures(data.shape)
    usual = [sum(values) / len(values) for values in (data.mean or (0.5,), data.std or (0.25,))]
    flat = inputs.detach().flatten(0, 1).nan_to_num().clamp(0, 1)
    return originals(flat, parse(policy), *usual).view_as(inputs)


def _require_pictures(shape: tuple[int, ...]) -> None:
    if len(shape) != 3:
        raise NotApplicable("a transformation policy acts on pictures, and this data is a table; leave it out")


def _found(plain: Matching, z: Tensor) -> tuple[Tensor, Tensor]:
    """The pictures (T, N, *shape) and labels (T, N) in z = (pictures, label logits if they are searched for)."""
    pictures, logits = plain.split(z)
    labels = plain.labels if logits is None else logits.argmax(-1)
    assert labels is not None
    return pictures, labels


@dataclass(frozen=True)
class Undoing:
    """Makes of what was found the pictures before the policy."""

    plain: Matching  # the problem without a policy
    policy: str
    data: DataSpec

    def __call__(self, z: Tensor) -> tuple[Tensor, Tensor]:
        inputs, labels = _found(self.plain, z)
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
        pictures, labels = _found(self.plain, z[:, : self.plain.visible])
        height, width = pictures.shape[-2:]
        masks = torch.stack([visible(way, height, width) for way in self.ways]).to(z.device)
        flat = pictures.flatten(0, 1).nan_to_num().clamp(0, 1)
        return filled_in(flat, masks[self._guesses(z).flatten()]).view_as(pictures), labels

    def _guesses(self, z: Tensor) -> Tensor:
        """(A, N); an attempt that came to nothing has none and gets the first."""
        guess = z.detach()[:, -self.plain.shape[0] :].nan_to_num().round().long()
        return guess.clamp(0, len(self.ways) - 1)
