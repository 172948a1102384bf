"""Several settings of one search side by side: no single prior wins on every network, so the worst case counts.

Each member is `inverting-gradients` with another distance and another weight of total variation. All of them, and all
their attempts, share each pass through the model. A member keeps the attempt with the lowest distance of its own, and
with several attempts it also answers with their mean. Which answer is best cannot be told without the private data: an
auditor therefore counts, record by record, the answer that comes closest, as after several attacks, and compares it
with other samples in the same way. Without the private data the answer whose gradient has the best direction is given.

The members were chosen on six victims each of eight cells (LeNet, ConvNet, ResNet-18 and ResNet-20 without training,
CIFAR pictures that no table uses); `benchmarks/peers.md` compares the portfolio with public implementations.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.engine import descent
from leakgauge.engine.driving import Evaluate, Minimum
from leakgauge.engine.randomness import normal
from leakgauge.matching.attempts import Start, attempts_for, in_order
from leakgauge.matching.input_search import InputSearch, sign_for
from leakgauge.matching.problem import Matching, side_by_side
from leakgauge.settings import setting
from leakgauge.types import Fact, Observation, Progress, Reconstruction


@dataclass(frozen=True)
class Member:
    """How one member compares gradients, and how much it prefers smooth pictures."""

    distance: str
    tv: float

    def __str__(self) -> str:
        return f"{self.distance}, tv={self.tv:g}"


MEMBERS = (
    Member("relative-l1", 1e-2),  # sharpest: follows the small entries
    Member("cosine-each", 1e-2),  # each tensor has its say: deep networks
    Member("cosine", 3e-2),
    Member("cosine-each", 3e-2),
    Member("cosine", 1e-4),  # as Inverting Gradients
)


@dataclass(frozen=True)
class Portfolio(InputSearch):
    """Settings of Inverting Gradients side by side.

    Example: `leakgauge attack portfolio --data photos32 --model lenet-dlg:activation=relu --steps 400 --trials 2`
    """

    name: ClassVar[str] = "portfolio"
    summary: ClassVar[str] = "several settings of Inverting Gradients side by side; the worst case counts"
    paper: ClassVar[str] = "after Geiping et al. 2020, Inverting Gradients, and Croce and Hein 2020, AutoAttack"
    tier: ClassVar[str] = "quick"
    cost: ClassVar[float] = 6.0
    in_suites: ClassVar[Mapping[str, str | None]] = {
        "quick": "steps=1200",
        "standard": "steps=4800,restarts=2",
        "full": "steps=24000,members=5,restarts=4",
    }
    needs: ClassVar[frozenset[Fact]] = frozenset({Fact.INPUT_SPEC, Fact.NUM_SAMPLES, Fact.LOCAL_TRAINING})

    members: int = setting(4, "how many settings, in their order", low=1, high=len(MEMBERS))
    restarts: int = setting(1, "attempts of each; with several, their mean is one more answer", low=1)
    tv: float = setting(0.0, "least weight of total variation that a member may have", low=0)

    @property
    def rows_per_trial(self) -> int:
        return self.members * self.restarts

    def problem(self, observation: Observation, seeds: tuple[int, ...]) -> Matching:  # noqa: ARG002
        """That of all members but for their own distances and weights of total variation."""
        return self.posed(observation, MEMBERS[0].distance, self.tv)

    def solve(self, problem: Matching, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:
        sign = sign_for(problem.observation)
        attempts, _ = attempts_for(problem, self.restarts, "halving")

        def start(some: Sequence[int], attempt: int) -> Tensor:
            return normal(some, f"start/{attempt}", (problem.width,)).to(problem.like)

        def search(problem: Matching, start: Start, progress: Progress) -> Reconstruction:
            return self._search(problem, start, sign, seeds, attempts, progress)

        return problem.searched(search, start, seeds, progress)

    def _search(
        self, problem: Matching, start: Start, sign: str, seeds: Sequence[int], attempts: int, progress: Progress
    ) -> Reconstruction:
        began, trials = time.perf_counter(), len(seeds)
        until = math.inf if self.time_budget is None else time.monotonic() + self.time_budget
        named = self._named(problem)
        problems = [p for p, _ in named]
        rows = len(named) * attempts  # of a trial: member by member, attempt by attempt

        def rows_of_members(index: Tensor) -> Evaluate:
            return side_by_side(problems, index % rows // attempts, index // rows)

        begun = torch.stack(
            [_begun(problem, start, seeds, m, a) for m in range(len(named)) for a in range(attempts)], 1
        )
        found = descent.descend(
            rows_of_members,
            begun.flatten(0, 1),
            steps=self.steps,
            lr=self.lr,
            sign=sign,
            decay="cosine",
            project=problem.boxed if self.boxed else lambda z: z,
            until=until,
            progress=progress,
        )
        points, values = found.x.view(trials, len(named), attempts, -1), found.value.view(trials, len(named), attempts)
        chosen = values.argmin(2)  # (T, M)
        bests = points.gather(2, chosen[..., None, None].expand(-1, -1, 1, points.shape[3])).squeeze(2)  # (T, M, D)
        own = _cosines(problem, bests).argmin(1)  # (T,) the member whose answer is given where only one may be
        every, names = list(bests.unbind(1)), [str(m) for _, m in named]
        if attempts > 1 and problem.opening is None:  # attempts at different guesses have no mean
            for m in range(len(named)):
                alike = [in_order(points[:, m, a], bests[:, m], problem) for a in range(attempts)]
                every.append(torch.stack(alike).mean(0))
            names += [f"{m}, mean of {attempts}" for _, m in named]
        return _told(problem, found, every, names, own, chosen, rows, time.perf_counter() - began)

    def _named(self, problem: Matching) -> list[tuple[Matching, Member]]:
        """The members' problems; of those that come to the same, one."""
        found: dict[Member, Matching] = {}
        for member in MEMBERS[: self.members]:
            own = isinstance(problem.distance, str)  # else a defense's distance has taken their place
            member = Member(member.distance if own else "the defense's", max(member.tv, problem.variation or 0.0))
            distance = member.distance if own else problem.distance
            found.setdefault(member, problem.replace(distance=distance, variation=member.tv))
        return [(own, member) for member, own in found.items()]


def _begun(problem: Matching, start: Start, seeds: Sequence[int], member: int, attempt: int) -> Tensor:
    """(T, D). Members start apart, but with the same guess about what an attempt stands for."""
    begun = start(seeds, attempt if member == 0 else 1000 * member + attempt)
    return begun if problem.opening is None else problem.opening(begun, attempt)


def _cosines(problem: Matching, points: Tensor) -> Tensor:
    """How far the gradients of points (T, M, D) are from the observed ones, by direction alone: (T, M)."""
    plain = dataclasses.replace(problem, distance="cosine") if isinstance(problem.distance, str) else problem
    trials, members = points.shape[:2]
    measured = plain.evaluator(torch.arange(trials, device=points.device).repeat_interleave(members))
    return measured(points.flatten(0, 1))[0].view(trials, members)


def _told(
    problem: Matching,
    found: Minimum,
    every: Sequence[Tensor],
    names: Sequence[str],
    own: Tensor,
    chosen: Tensor,
    rows: int,
    seconds: float,
) -> Reconstruction:
    trials = len(own)
    inputs, labels = [], []
    for point in every:
        pictures, logits = problem.split(point)
        said = problem.labels if logits is None else logits.argmax(-1)
        if problem.finish is not None:
            pictures, said = problem.finish(point[:, : problem.visible])
        assert said is not None
        inputs.append(pictures.detach())
        labels.append(said)
    at = torch.arange(trials, device=own.device)
    answers, attempts = torch.stack(inputs, 1), rows // chosen.shape[1]
    row = at * rows + own * attempts + chosen[at, own]
    spent = {name: getattr(found, name).view(trials, rows) for name in ("steps", "evaluations", "finished")}
    return Reconstruction(
        answers[at, own],
        torch.stack(labels, 1)[at, own],
        found.value[row],
        spent["steps"].sum(1),
        spent["evaluations"].sum(1),
        seconds,
        found.trace[row],
        spent["finished"].all(1) if found.interrupted else None,
        answers=answers,
        answer_names=tuple(names),
    )
