"""Several attempts at each trial: the best by its own objective, in turn or side by side with halving, or their mean.

The mean is for networks with kinks, where every attempt ends somewhere else: the attempts share the picture, and their
errors partly cancel.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from leakgauge.engine.driving import Minimum, winners
from leakgauge.engine.randomness import normal
from leakgauge.matching.problem import Matching, Start
from leakgauge.settings import setting
from leakgauge.types import Attack, Fact, Progress, Reconstruction

SCHEDULES = ("in-turn", "halving")
AVERAGED = "averaged"  # of searches over the inputs themselves; the mean of two generators draws nothing

# An optimiser with its settings: (problem, start (R, D), attempts=, until=, progress=, and the goals if there are some)
# -> what it found, R rows in groups of `attempts`.
Minimise = Callable[..., Minimum]
Enough = Callable[[Tensor, Tensor], Tensor]  # (best values, values at the start) -> True where no attempt need follow


def attempts_for(problem: Matching, restarts: int, schedule: str) -> tuple[int, str]:
    """How many attempts, and how: at least one for each guess that the problem holds, side by side."""
    return max(restarts, problem.guesses), "halving" if problem.guesses > 1 else schedule


@dataclass(frozen=True)
class SearchAttack(Attack):
    """Fields and loop of attacks that search, in several attempts from different starts.

    A subclass writes `problem` and `optimiser`, and `start` if attempts do not begin at N(0, 1). One that makes its
    attempts in its own way writes `attempt` in place of `optimiser`. A field `schedule` says how they are made.
    """

    kind: ClassVar[type] = Matching
    needs: ClassVar[frozenset[Fact]] = frozenset({Fact.INPUT_SPEC, Fact.NUM_SAMPLES, Fact.LOCAL_TRAINING})

    steps: int = setting(4800, "optimiser steps per attempt", low=1)
    restarts: int = setting(1, "attempts; the one with the lowest cost is kept", low=1)
    time_budget: float | None = setting(None, "seconds for all victims together; none unless given", above=0)

    @property
    def rows_per_trial(self) -> int:
        return self.restarts if getattr(self, "schedule", "halving") == "halving" else 1

    def solve(self, problem: Matching, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:
        attempts = max(self.restarts, problem.guesses)

        def search(problem: Matching, start: Start, progress: Progress) -> Reconstruction:
            return self.attempt(problem, start, seeds, attempts, progress)

        return problem.searched(search, self.start(problem, seeds), seeds, progress)

    def attempt(
        self, problem: Matching, start: Start, seeds: tuple[int, ...], attempts: int, progress: Progress, **more: Any
    ) -> Reconstruction:
        """So many attempts at every trial; `more` is handed to `solve`."""
        _, schedule = attempts_for(problem, attempts, getattr(self, "schedule", "halving"))
        more |= {"attempts": attempts, "schedule": schedule, "time_budget": self.time_budget, "progress": progress}
        return solve(problem, seeds, start=start, minimise=self.optimiser(problem, seeds), **more)

    def optimiser(self, problem: Matching, seeds: tuple[int, ...]) -> Minimise:
        """With the attack's settings, `descent.descend` for instance."""
        raise NotImplementedError  # abstract

    def start(self, problem: Matching, seeds: tuple[int, ...]) -> Start:  # noqa: ARG002
        """How attempts begin; `seeds` are those of all trials."""
        return lambda some, attempt: normal(some, f"start/{attempt}", (problem.width,)).to(problem.like)


def solve(
    problem: Matching,
    seeds: Sequence[int],
    *,
    start: Start,
    minimise: Minimise,
    attempts: int,
    schedule: str,
    progress: Progress,
    enough: Enough | None = None,
    time_budget: float | None = None,
    goals: Mapping[str, Tensor] | None = None,
) -> Reconstruction:
    """Up to `attempts` at every trial within `time_budget` seconds for all trials together.

    `goals`, name -> (T, ...), are handed to `minimise` by name, for the rows it is called with: what ends each row.
    """
    began = time.perf_counter()
    until = float("inf") if time_budget is None else time.monotonic() + time_budget
    several = _Attempts(problem, seeds, start, minimise, attempts, until, progress, goals or {})
    if schedule == "halving":
        found = several.side_by_side()
    else:
        found = several.averaged() if schedule == AVERAGED else several.in_turn(enough)
    inputs, labels = reported(problem, found.x)
    film = None if found.film is None else torch.stack([reported(problem, z)[0] for z in found.film.unbind(1)], 1)
    finished, seconds = found.finished if found.interrupted else None, time.perf_counter() - began
    return Reconstruction(
        inputs, labels, found.value, found.steps, found.evaluations, seconds, found.trace, finished, film=film
    )


def best_of(
    problem: Matching, seeds: Sequence[int], start: Start, minimise: Minimise, attempts: int, progress: Progress
) -> Minimum:
    """All attempts at every trial side by side; of each trial the one with the lowest value."""
    return _Attempts(problem, seeds, start, minimise, attempts, float("inf"), progress, {}).side_by_side()


def reported(problem: Matching, z: Tensor) -> tuple[Tensor, Tensor | None]:
    """(T, D) -> the inputs (T, N, *shape) and labels that are reported of it."""
    if problem.finish is not None:
        inputs, labels = problem.finish(z[:, : problem.visible])
        return inputs.detach(), labels
    inputs, logits = problem.split(z)
    return inputs.detach(), problem.known_labels if logits is None else problem.named(logits)


def one_row_each(found: Minimum, best: Tensor, rows: int) -> Minimum:
    """Of each trial the row `best` (T,), with what all its `rows` have spent."""
    steps, evaluations, finished = (t.reshape(-1, rows) for t in (found.steps, found.evaluations, found.finished))
    film = None if found.film is None else found.film[best]
    spent = steps.sum(1), evaluations.sum(1), found.trace[best], finished.all(1)
    return Minimum(found.x[best], found.value[best], *spent, found.interrupted, film)


@dataclass(frozen=True)
class _Attempts:
    """The attempts at every trial, and the three ways to make them."""

    problem: Matching
    seeds: Sequence[int]
    start: Start
    minimise: Minimise
    number: int
    until: float
    progress: Progress
    goals: Mapping[str, Tensor]

    @property
    def trials(self) -> Tensor:
        return torch.arange(len(self.seeds), device=self.problem.like.device)

    def begun(self, seeds: Sequence[int], attempt: int) -> Tensor:
        begun, opening = self.start(seeds, attempt), self.problem.opening
        return begun if opening is None else opening(begun, attempt)

    def run(
        self, trials: Tensor, start: Tensor, progress: Progress, until: float | None = None, attempts: int = 1
    ) -> Minimum:
        """The optimiser on these trials, `attempts` rows of each."""
        rows = trials.repeat_interleave(attempts)
        return self.minimise(
            lambda some: self.problem.evaluator(rows[some]),
            start,
            attempts=attempts,
            until=self.until if until is None else until,
            progress=progress,
            **{name: goal[rows.to(goal.device)] for name, goal in self.goals.items()},
        )

    def side_by_side(self) -> Minimum:
        """All attempts at once; the worse half of each trial's is given up again and again."""
        begun = torch.stack([self.begun(self.seeds, attempt) for attempt in range(self.number)], 1)  # trial by trial
        found = self.run(self.trials, begun.flatten(0, 1), self.progress, attempts=self.number)
        return one_row_each(found, winners(found.value, self.number), self.number)

    def in_turn(self, enough: Enough | None) -> Minimum:
        """One attempt after another, each at the trials where the last one was not enough."""
        rows, trials, like = self.trials, len(self.seeds), self.problem.like
        best, value = like.new_full((trials, self.problem.width), torch.nan), like.new_full((trials,), torch.inf)
        steps, evaluations = torch.zeros(2, trials, dtype=torch.long, device=like.device)
        finished = torch.ones(trials, dtype=torch.bool, device=like.device)
        trace: Tensor | None = None
        film: Tensor | None = None
        for attempt in range(self.number):
            begun = self.begun([self.seeds[t] for t in rows.tolist()], attempt)
            found = self.run(rows, begun, part_of(self.progress, attempt, self.number))
            steps[rows] += found.steps
            evaluations[rows] += found.evaluations
            better = found.value < value[rows]
            best[rows] = torch.where(better[:, None], found.x, best[rows])
            value[rows] = torch.where(better, found.value, value[rows])
            trace = merge_trace(trace, found.trace, rows, better, trials)
            if film is None or found.film is None:  # the first attempt is that of all trials
                film = found.film
            else:
                film = film.index_copy(0, rows[better], found.film[better])
            done = torch.zeros_like(finished) if enough is None else enough(value, trace[:, 0])
            if found.interrupted:
                finished[rows] = found.finished & (done[rows] | (attempt + 1 == self.number))
                break
            rows = torch.nonzero(~done)[:, 0]
            if len(rows) == 0 or time.monotonic() >= self.until:
                break
        assert trace is not None
        return Minimum(best, value, steps, evaluations, trace, finished, found.interrupted, film)

    def averaged(self) -> Minimum:
        """Every attempt to its end, then their mean, with its own value; a batch's samples in the best one's order."""
        every: list[Minimum] = []
        for attempt in range(self.number):
            now = time.monotonic()
            until = now + (self.until - now) / (self.number - attempt)
            begun = self.begun(self.seeds, attempt)
            every.append(self.run(self.trials, begun, part_of(self.progress, attempt, self.number), until))
            if every[-1].interrupted or time.monotonic() >= self.until:
                break
        values, points, steps, evaluations, finished = (
            torch.stack([getattr(found, name) for found in every])  # (attempts, T, ...)
            for name in ("value", "x", "steps", "evaluations", "finished")
        )
        best, trials = values.argmin(0), self.trials
        like = points[best, trials]
        mean = torch.stack([in_order(point, like, self.problem) for point in points]).mean(0)
        value, _ = self.problem.evaluator(trials)(mean)
        trace: Tensor | None = None
        for attempt, found in enumerate(every):
            trace = merge_trace(trace, found.trace, trials, best == attempt, len(trials))
        assert trace is not None
        return Minimum(mean, value, steps.sum(0), evaluations.sum(0) + 1, trace, finished.all(0), every[-1].interrupted)


def in_order(point: Tensor, like: Tensor, problem: Matching) -> Tensor:
    """The samples of each batch of (T, D) moved to the places of those in `like` that they resemble most."""
    samples = problem.shape[0]
    if samples == 1:
        return point
    mine, theirs = (p[:, : problem.pixels].reshape(len(p), samples, -1) for p in (point, like))
    named = point[:, problem.pixels : problem.visible].reshape(len(point), samples, -1)  # labels that are searched for
    apart = torch.cdist(theirs, mine)  # (T, N, N)
    if problem.labels is not None:  # a sample's label is fixed to its place
        differ = problem.labels[:, :, None] != problem.labels[:, None]  # (T, N, N), or more where targets have a shape
        apart = apart.masked_fill(differ.reshape(*apart.shape, -1).any(-1), 1e9)
    order = torch.stack([torch.as_tensor(linear_sum_assignment(a.cpu().numpy())[1]) for a in apart]).to(point.device)
    moved = [part.gather(1, order[:, :, None].expand_as(part)).flatten(1) for part in (mine, named)]
    return torch.cat((*moved, point[:, problem.visible :]), 1)


def part_of(progress: Progress, part: int, parts: int) -> Progress:
    """Progress of one part among several equal ones."""
    return lambda share: progress((part + share) / parts)


def merge_trace(old: Tensor | None, new: Tensor, rows: Tensor, better: Tensor, trials: int) -> Tensor:
    """Keep each trial's trace of the attempt that is kept; shorter ones are filled with nan."""
    length = max(new.shape[1], 0 if old is None else old.shape[1])
    merged = torch.full((trials, length), torch.nan, device=new.device, dtype=new.dtype)
    if old is not None:
        merged[:, : old.shape[1]] = old
    kept = rows[better]
    merged[kept] = torch.nan
    merged[kept, : new.shape[1]] = new[better]
    return merged
