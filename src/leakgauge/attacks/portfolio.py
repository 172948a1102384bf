"""Several settings of one search side by side: no single prior wins on every network, so the worst case counts.

Each member is `inverting-gradients` with another distance and another weight of total variation. All of them, and all
their attempts, share each pass through the model. A member keeps the attempt with the lowest distance of its own, and
with several attempts it also answers with their mean. Which answer is best cannot be known without the private data: an
auditor therefore counts, record by record, the answer that comes closest, as after several attacks, and compares it
with other samples in the same way. Without the private data the answer whose gradient has the best direction is given.

The members were chosen on six victims each of eight cells (LeNet, ConvNet, ResNet-18 and ResNet-20 without training,
CIFAR pictures that no table uses); `benchmarks/peers.md` compares the portfolio with public implementations.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from leakgauge.attacks.inverting_gradients import InputSearch, sign_for
from leakgauge.engine.driving import Evaluate
from leakgauge.matching.attempts import in_order, one_row_each, reported
from leakgauge.matching.problem import Matching, Start, side_by_side
from leakgauge.settings import setting
from leakgauge.types import Observation, Progress, Reconstruction


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

    members: int = setting(4, "how many settings, in their order", low=1, high=len(MEMBERS))
    restarts: int = setting(1, "attempts of each; with several, their mean is one more answer", low=1)
    tv: float = setting(0.0, "least weight of total variation that a member may have", low=0)

    @property
    def rows_per_trial(self) -> int:
        return self.members * self.restarts

    def problem(self, observation: Observation, seeds: tuple[int, ...]) -> Matching:  # noqa: ARG002
        """That of all members but for their own distances and weights of total variation."""
        return self.posed(observation, MEMBERS[0].distance, self.tv)

    def attempt(
        self, problem: Matching, start: Start, seeds: tuple[int, ...], attempts: int, progress: Progress, **_: Any
    ) -> Reconstruction:
        began, trials = time.perf_counter(), len(seeds)
        until = math.inf if self.time_budget is None else time.monotonic() + self.time_budget
        minimise = self.descending(problem, sign=sign_for(problem.observation), decay="cosine")
        named = self._named(problem)
        members, problems = len(named), list(named.values())
        rows = members * attempts  # of a trial: member by member, attempt by attempt

        def rows_of_members(index: Tensor) -> Evaluate:
            return side_by_side(problems, index % rows // attempts, index // rows)

        def begun(member: int, attempt: int) -> Tensor:
            """(T, D). Members start apart, but with the same guess about what an attempt stands for."""
            begun = start(seeds, attempt if member == 0 else 1000 * member + attempt)
            return begun if problem.opening is None else problem.opening(begun, attempt)

        starts = torch.stack([begun(member, attempt) for member in range(members) for attempt in range(attempts)], 1)
        found = minimise(rows_of_members, starts.flatten(0, 1), until=until, progress=progress)
        points, chosen = found.x.view(trials, members, attempts, -1), found.value.view(trials, members, -1).argmin(2)
        at = torch.arange(trials, device=chosen.device)
        every = [points[at, m, chosen[:, m]] for m in range(members)]  # the best of each member, (T, D)
        own = _cosines(problem, torch.stack(every, 1)).argmin(1)  # (T,) whose answer is given where only one may be
        names = [str(member) for member in named]
        if attempts > 1 and problem.opening is None:  # attempts at different guesses have no mean
            for m, member in enumerate(named):
                alike = [in_order(points[:, m, a], every[m], problem) for a in range(attempts)]
                every.append(torch.stack(alike).mean(0))
                names.append(f"{member}, mean of {attempts}")
        kept = one_row_each(found, at * rows + own * attempts + chosen[at, own], rows)
        inputs, labels = zip(*(reported(problem, point) for point in every), strict=True)
        answers, named_labels = torch.stack(inputs, 1), [one for one in labels if one is not None]
        return Reconstruction(
            answers[at, own],
            torch.stack(named_labels, 1)[at, own] if named_labels else None,
            kept.value,
            kept.steps,
            kept.evaluations,
            time.perf_counter() - began,
            kept.trace,
            kept.finished if found.interrupted else None,
            answers=answers,
            answer_names=tuple(names),
        )

    def _named(self, problem: Matching) -> dict[Member, Matching]:
        """The members' problems; of those that come to the same, one."""
        found: dict[Member, Matching] = {}
        for member in MEMBERS[: self.members]:
            own = isinstance(problem.distance, str)  # else a defense's distance has taken their place
            member = Member(member.distance if own else "the defense's", max(member.tv, problem.variation or 0.0))
            distance = member.distance if own else problem.distance
            found.setdefault(member, problem.replace(distance=distance, variation=member.tv))
        return found


def _cosines(problem: Matching, points: Tensor) -> Tensor:
    """How far the gradients of points (T, M, D) are from the observed ones, by direction alone: (T, M)."""
    plain = problem.replace(distance="cosine") if isinstance(problem.distance, str) else problem
    trials, members = points.shape[:2]
    measured = plain.evaluator(torch.arange(trials, device=points.device).repeat_interleave(members))
    return measured(points.flatten(0, 1))[0].view(trials, members)
