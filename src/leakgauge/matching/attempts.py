"""Several attempts at each trial: the best by its own objective, in turn or side by side with halving, or their mean.

The mean is for networks with kinks, on which every attempt ends somewhere else: what they share is the picture, and
their errors partly cancel.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from leakgauge.engine.driving import Minimum
from leakgauge.engine.halving import winners
from leakgauge.matching.problem import Matching, Opening
from leakgauge.types import Progress, Reconstruction

SCHEDULES = ("in-turn", "halving")
AVERAGED = "averaged"  # of searches over the inputs themselves; the mean of two generators draws nothing


# An optimiser with its settings: (problem, start (R, D), attempts=, until=, progress=) -> what it found, R rows in
# groups of `attempts`; with goals=(R, ...) where `solve` was told what ends a row.
Minimise = Callable[..., Minimum]
Start = Callable[[Sequence[int], int], Tensor]  # (seeds of some trials, number of the attempt) -> (A, D)
Settled = Callable[[Tensor, Tensor], Tensor]  # (best values, values at the start) -> True where no attempt need follow


def attempts_for(problem: Matching, restarts: int, schedule: str) -> tuple[int, str]:
    """How many attempts, and how: at least one for each guess that the problem holds, side by side."""
    return max(restarts, problem.guesses), "halving" if problem.guesses > 1 else schedule


def solve(
    problem: Matching,
    seeds: Sequence[int],
    *,
    start: Start,
    minimise: Minimise,
    attempts: int,
    schedule: str,
    settled: Settled,
    time_budget: float | None,
    progress: Progress,
    goals: Tensor | None = None,
) -> Reconstruction:
    """Up to `attempts` at every trial within `time_budget` seconds for all trials together.

    `goals` (T, ...) is handed to `minimise`, for the rows it is called with: what ends each.
    """
    began = time.perf_counter()
    until = float("inf") if time_budget is None else time.monotonic() + time_budget
    start = _opened(start, problem.opening)
    if schedule == "halving":
        found = _side_by_side(problem, seeds, start, minimise, attempts, until, progress, goals)
    elif schedule == AVERAGED:
        found = _averaged(problem, seeds, start, minimise, attempts, until, progress, goals)
    else:
        found = _in_turn(problem, seeds, start, minimise, attempts, settled, until, progress, goals)
    inputs, labels = reported(problem, found.x)
    finished = found.finished if found.interrupted else None
    seconds = time.perf_counter() - began
    return Reconstruction(
        inputs,
        labels,
        found.value,
        found.steps,
        found.evaluations,
        seconds,
        found.trace,
        finished,
        film=None if found.film is None else torch.stack([reported(problem, z)[0] for z in found.film.unbind(1)], 1),
    )


def reported(problem: Matching, z: Tensor) -> tuple[Tensor, Tensor | None]:
    """(T, D) -> the inputs (T, N, *shape) and labels that are reported of it."""
    if problem.finish is not None:
        inputs, labels = problem.finish(z[:, : problem.visible])
        return inputs.detach(), labels
    inputs, logits = problem.split(z)
    return inputs.detach(), problem.labels if logits is None else problem.named(logits)


def best_of(
    problem: Matching, seeds: Sequence[int], start: Start, minimise: Minimise, attempts: int, progress: Progress
) -> Minimum:
    """All attempts at every trial side by side; of each trial the one with the lowest value."""
    opened = _opened(start, problem.opening)
    return _side_by_side(problem, seeds, opened, minimise, attempts, float("inf"), progress, None)


def _opened(start: Start, opening: Opening | None) -> Start:
    if opening is None:
        return start
    return lambda seeds, attempt: opening(start(seeds, attempt), attempt)


def _side_by_side(
    problem: Matching,
    seeds: Sequence[int],
    start: Start,
    minimise: Minimise,
    attempts: int,
    until: float,
    progress: Progress,
    goals: Tensor | None,
) -> Minimum:
    """All attempts at once; the worse half of each trial's is given up again and again."""
    begun = torch.stack([start(seeds, attempt) for attempt in range(attempts)], 1).flatten(0, 1)  # trial by trial
    found = minimise(
        lambda rows: problem.evaluator(rows // attempts),
        begun,
        attempts=attempts,
        until=until,
        progress=progress,
        **_told(goals, torch.arange(len(seeds)), attempts),
    )
    best = winners(found.value, attempts)
    spent = {name: getattr(found, name).reshape(-1, attempts) for name in ("steps", "evaluations", "finished")}
    return Minimum(
        found.x[best],
        found.value[best],
        spent["steps"].sum(1),
        spent["evaluations"].sum(1),
        found.trace[best],
        spent["finished"].all(1),
        found.interrupted,
        None if found.film is None else found.film[best],
    )


def _in_turn(
    problem: Matching,
    seeds: Sequence[int],
    start: Start,
    minimise: Minimise,
    attempts: int,
    settled: Settled,
    until: float,
    progress: Progress,
    goals: Tensor | None,
) -> Minimum:
    """One attempt after another, each at the trials that are not settled yet."""
    trials, like = len(seeds), problem.like
    best = like.new_full((trials, problem.width), torch.nan)
    value, begun = like.new_full((2, trials), torch.inf)
    steps, evaluations = torch.zeros(2, trials, dtype=torch.long, device=like.device)
    finished = torch.ones(trials, dtype=torch.bool, device=like.device)
    trace: Tensor | None = None
    film: Tensor | None = None
    interrupted = False
    rows = torch.arange(trials, device=like.device)
    for attempt in range(attempts):
        found = minimise(
            lambda some, rows=rows: problem.evaluator(rows[some]),
            start([seeds[t] for t in rows.tolist()], attempt),
            attempts=1,
            until=until,
            progress=part_of(progress, attempt, attempts),
            **_told(goals, rows),
        )
        steps[rows] += found.steps
        evaluations[rows] += found.evaluations
        better = found.value < value[rows]
        best[rows] = torch.where(better[:, None], found.x, best[rows])
        value[rows] = torch.where(better, found.value, value[rows])
        trace = merge_trace(trace, found.trace, rows, better, trials)
        film = _merge_film(film, found.film, rows, better)
        begun = trace[:, 0]
        open_trials = ~settled(value, begun)
        interrupted = found.interrupted
        if interrupted:
            more = attempt + 1 < attempts
            finished[rows] = found.finished & ~(open_trials[rows] & more)
            break
        rows = torch.nonzero(open_trials)[:, 0]
        if len(rows) == 0 or time.monotonic() >= until:
            break
    assert trace is not None
    return Minimum(best, value, steps, evaluations, trace, finished, interrupted, film)


def _averaged(
    problem: Matching,
    seeds: Sequence[int],
    start: Start,
    minimise: Minimise,
    attempts: int,
    until: float,
    progress: Progress,
    goals: Tensor | None,
) -> Minimum:
    """Every attempt to its end, then their mean, with its own value; the samples of a batch in the best one's order."""
    every: list[Minimum] = []
    for attempt in range(attempts):
        left = until if until == float("inf") else time.monotonic() + (until - time.monotonic()) / (attempts - attempt)
        every.append(
            minimise(
                problem.evaluator,
                start(seeds, attempt),
                attempts=1,
                until=left,
                progress=part_of(progress, attempt, attempts),
                **_told(goals, torch.arange(len(seeds))),
            )
        )
        if every[-1].interrupted or time.monotonic() >= until:
            break
    values = torch.stack([found.value for found in every])  # (attempts, T)
    best = values.argmin(0)
    rows = torch.arange(len(seeds), device=best.device)
    points = torch.stack([found.x for found in every])  # (attempts, T, D)
    like = points[best, rows]
    mean = torch.stack([in_order(point, like, problem) for point in points]).mean(0)
    value, _ = problem.evaluator(rows)(mean)
    trace: Tensor | None = None
    for attempt, found in enumerate(every):
        trace = merge_trace(trace, found.trace, rows, best == attempt, len(seeds))
    assert trace is not None
    steps, evaluations, finished = (
        torch.stack([getattr(found, name) for found in every]) for name in ("steps", "evaluations", "finished")
    )
    return Minimum(mean, value, steps.sum(0), evaluations.sum(0) + 1, trace, finished.all(0), every[-1].interrupted)


def _told(goals: Tensor | None, trials: Tensor, attempts: int = 1) -> dict[str, Tensor]:
    """What an optimiser is told of the values that end its rows: nothing where there are none."""
    return {} if goals is None else {"goals": goals[trials.to(goals.device)].repeat_interleave(attempts, 0)}


def in_order(point: Tensor, like: Tensor, problem: Matching) -> Tensor:
    """The samples of each batch of (T, D) moved to the places of those in `like` that they resemble most."""
    samples = problem.shape[0]
    if samples == 1:
        return point
    mine, theirs = (p[:, : problem.pixels].reshape(len(p), samples, -1) for p in (point, like))
    named = point[:, problem.pixels : problem.visible].reshape(len(point), samples, -1)  # labels that are searched for
    apart = torch.cdist(theirs, mine)  # (T, N, N)
    if problem.labels is not None:  # a sample's label is fixed to its place
        apart = apart.masked_fill(problem.labels[:, :, None] != problem.labels[:, None], 1e9)
    order = torch.stack([torch.as_tensor(linear_sum_assignment(a.cpu().numpy())[1]) for a in apart]).to(point.device)
    moved = [part.gather(1, order[:, :, None].expand_as(part)).flatten(1) for part in (mine, named)]
    return torch.cat((*moved, point[:, problem.visible :]), 1)


def part_of(progress: Progress, part: int, parts: int) -> Progress:
    """Progress of one part among several equal ones."""
    return lambda share: progress((part + share) / parts)


def _merge_film(old: Tensor | None, new: Tensor | None, rows: Tensor, better: Tensor) -> Tensor | None:
    """The frames of the attempt that is kept."""
    if new is None or old is None:  # the first attempt is that of all trials
        return new
    kept = old.clone()
    kept[rows[better]] = new[better]
    return kept


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
