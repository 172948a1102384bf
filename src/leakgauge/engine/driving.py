"""Drives a batched optimiser: many rows side by side, each with its own end.

A method keeps its state in tensors with a leading axis of rows and changes them in place, one iteration per call. This
loop looks at it now and then (the only place where the host waits for the device): rows that have ended leave, attempts
that are outrun by their brothers are given up, a deadline or an interrupt ends it all with what is there.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from leakgauge.engine.film import Film
from leakgauge.engine.halving import outrun, rungs
from leakgauge.engine.repeating import Repeated

_TINY = 1e-30
Evaluate = Callable[[Tensor], tuple[Tensor, Tensor]]  # x (A, D) -> value (A,), gradient (A, D)
# Given the indices of some rows, returns the function that evaluates just those.
Problem = Callable[[Tensor], Evaluate]


@dataclass(frozen=True)
class Minimum:
    """Per row: the best point seen by its own objective, and what it took."""

    x: Tensor  # (R, D)
    value: Tensor  # (R,)
    steps: Tensor  # (R,)
    evaluations: Tensor  # (R,)
    trace: Tensor  # (R, S) best value after each S-th check; nan once the row has ended
    finished: Tensor  # (R,) False where an interrupt cut the row off
    interrupted: bool = False
    film: Tensor | None = None  # (R, F, D) the best points on the way, where frames were asked for


@dataclass
class State:
    """What every method keeps per row. Subclasses add tensors of their own; all have the rows on their first axis."""

    x: Tensor  # (A, D) the point to be evaluated next
    best_x: Tensor
    best: Tensor  # (A,)
    evaluations: Tensor  # (A,)
    done: Tensor  # (A,) has come to its end; set by the method at any time
    left: Tensor  # (A,) has ended and is known to have: no longer counted
    goal: Tensor  # (A,) a value below this ends the row: it is solved
    share: Tensor  # (A,) and below this share of its first value: some begin so low that any start would do

    @staticmethod
    def common(start: Tensor) -> dict[str, Tensor]:
        rows = len(start)
        flags = torch.zeros(2, rows, dtype=torch.bool, device=start.device)
        return {
            "x": start.clone(),
            "best_x": start.clone(),
            "best": start.new_full((rows,), torch.inf),
            "evaluations": torch.zeros(rows, dtype=torch.long, device=start.device),
            "done": flags[0].clone(),
            "left": flags[1].clone(),
            "goal": each(-math.inf, start),
            "share": each(math.inf, start),
        }

    def note(self, value: Tensor) -> None:
        """Count an evaluation at x and remember it where it is the best so far."""
        first = (self.evaluations == 0) & torch.isfinite(value)
        self.goal.copy_(torch.where(first, torch.minimum(self.goal, self.share * value.clamp_min(_TINY)), self.goal))
        self.evaluations += ~self.left
        better = (value < self.best) & ~self.left  # False for nan
        overwrite(self.best_x, better, self.x)
        self.best.copy_(torch.where(better, value, self.best))

    def keep(self, rows: Tensor) -> None:
        for name, tensor in vars(self).items():
            setattr(self, name, tensor[rows])


def each(number: float | Tensor, start: Tensor) -> Tensor:
    """(R,), one for each row of `start`, from one for all or one for each."""
    return number.to(start).clone() if isinstance(number, Tensor) else start.new_full((len(start),), number)


def overwrite(target: Tensor, rows: Tensor, source: Tensor) -> None:
    """`target[rows] = source[rows]` for a mask of rows (A,).

    A GPU must not be asked which rows these are. A CPU may be, and is: wide rows are bound by memory there, and most
    often either all of them are copied or none.
    """
    if target.device.type != "cpu":
        target.copy_(torch.where(rows[:, None], source, target))
    elif rows.all():
        target.copy_(source)
    elif rows.any():
        target[rows] = source[rows]


class Method(Protocol):
    """A batched optimiser."""

    @property
    def per_check(self) -> int:
        """Iterations between two looks."""

    @property
    def per_step(self) -> int:
        """Iterations that count as one step."""

    def begin(self, start: Tensor) -> State: ...

    def iterate(self, state: State, evaluate: Evaluate) -> None:
        """Evaluate at `state.x`, note the value, and move on: in place, without asking the device for anything."""

    def look(self, state: State) -> None:
        """Called at every look, before ended rows leave."""


@dataclass(frozen=True)
class Budget:
    """When to stop besides convergence."""

    steps: int
    stop_below: float | Tensor = -math.inf  # one for all rows, or (R,)
    stop_share: float | Tensor = math.inf  # and below this share of a row's first value
    until: float = math.inf  # on the clock of time.monotonic
    attempts: int = 1  # rows that belong to one trial and race by successive halving
    progress: Callable[[float], None] = field(default=lambda _: None)
    frames: tuple[int, ...] = ()  # steps after which the best points are kept


def drive(method: Method, problem: Problem, start: Tensor, budget: Budget) -> Minimum:
    """Minimise R objectives from `start` (R, D)."""
    best_x, best = start.clone(), start.new_full((len(start),), torch.inf)
    evaluations = torch.zeros(len(start), dtype=torch.long, device=start.device)
    finished = torch.zeros(len(start), dtype=torch.bool, device=start.device)
    index = torch.arange(len(start), device=start.device)
    limit = budget.steps * method.per_step
    solved_below = each(budget.stop_below, start)
    cuts = {step * method.per_step: kept for step, kept in rungs(budget.steps, budget.attempts).items()}
    trace: list[Tensor] = []
    film = Film(budget.frames, method.per_step)
    interrupted = moving = False

    state = method.begin(start)
    state.goal.copy_(solved_below)
    state.share.copy_(each(budget.stop_share, start))
    iterate = _iteration(method, state, problem(index))

    def collect() -> None:
        best_x[index], best[index], evaluations[index] = state.best_x, state.best, state.evaluations
        solved_below[index] = state.goal

    try:
        for iteration in range(limit + 1):
            iterate()
            late = time.monotonic() >= budget.until
            if iteration % method.per_check and iteration != limit and not late:
                continue
            collect()
            film.look(iteration, best_x)
            method.look(state)
            if budget.attempts > 1:
                passed = [kept for at, kept in cuts.items() if at <= iteration]
                kept = min(passed, default=budget.attempts)
                state.done |= outrun(best, budget.attempts, kept, solved_below)[index]
            trace.append(
                torch.full_like(best, torch.nan).index_copy(0, index, torch.where(state.left, torch.nan, state.best))
            )
            state.left.copy_(state.done)
            active = torch.nonzero(~state.done)[:, 0]
            if len(active) == 0 or iteration == limit or late:
                break
            if _worth_leaving(len(active), len(index), start.device):
                finished[index] = state.done
                moving = True  # an interrupt in here finds state and index at odds
                index = index[active]
                state.keep(active)
                moving = False
                iterate = _iteration(method, state, problem(index))
            budget.progress(iteration / limit)
        finished[:] = True
    except KeyboardInterrupt:
        interrupted = True
        if not moving:
            collect()
            finished[index] = state.left
    steps = (evaluations - 1).clamp_min(0).add(method.per_step - 1) // method.per_step
    rows = torch.stack(trace, 1) if trace else best[:, None]
    return Minimum(best_x, best, steps, evaluations, rows, finished, interrupted, film.developed(best_x))


def _iteration(method: Method, state: State, evaluate: Evaluate) -> Repeated:
    return Repeated(lambda: method.iterate(state, evaluate), state.x.device)


def _worth_leaving(active: int, rows: int, device: torch.device) -> bool:
    """On a GPU smaller tensors mean a new recording, so ended rows leave when they are half or more."""
    return active < rows if device.type == "cpu" else 2 * active <= rows
