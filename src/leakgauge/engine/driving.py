"""Drives a batched optimiser: many rows side by side, each with its own end.

A method keeps its state in tensors with a leading axis of rows and changes them in place, one iteration per call. This
loop looks at it now and then (the only place where the host waits for the device): rows that have ended leave, attempts
that are worse than others at the same trial stop, a deadline or an interrupt ends it all with the best so far.

Attempts race by successive halving (Jamieson and Talwalkar 2016): several start together, and the worse half stops,
again and again, judged by their own objective alone. Eight attempts so cost two and a half full ones. Rows of one trial
lie side by side: row = trial x attempts + attempt.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

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
class Rows:
    """Tensors, and other such groups, that all have the rows on their first axis."""

    def keep(self, rows: Tensor) -> None:
        """Only these rows stay."""
        for name, value in vars(self).items():
            if isinstance(value, Rows):
                value.keep(rows)
            else:
                setattr(self, name, value[rows])


@dataclass
class State(Rows):
    """What every method keeps per row. Subclasses add tensors of their own."""

    x: Tensor  # (A, D) the point to be evaluated next
    best_x: Tensor
    best: Tensor  # (A,)
    evaluations: Tensor  # (A,)
    done: Tensor  # (A,) has ended; set by the method at any time
    left: Tensor  # (A,) was found to have ended at a look: no longer counted
    goal: Tensor  # (A,) a value below this ends the row: it is solved
    share: Tensor  # (A,) and below this share of its first value: some begin so low that any start would do

    @staticmethod
    def common(start: Tensor) -> dict[str, Tensor]:
        nothing = start.new_zeros(len(start))
        return {
            "x": start.clone(),
            "best_x": start.clone(),
            "best": torch.full_like(nothing, torch.inf),
            "evaluations": nothing.long(),
            "done": nothing.bool(),
            "left": nothing.bool(),
            "goal": torch.full_like(nothing, -math.inf),
            "share": torch.full_like(nothing, math.inf),
        }

    def note(self, value: Tensor) -> None:
        """Count an evaluation at x and remember it if it is the best so far."""
        first = (self.evaluations == 0) & torch.isfinite(value)
        self.goal.copy_(torch.where(first, torch.minimum(self.goal, self.share * value.clamp_min(_TINY)), self.goal))
        self.evaluations += ~self.left
        better = (value < self.best) & ~self.left  # False for nan
        overwrite(self.best_x, better, self.x)
        overwrite(self.best, better, value)


def overwrite(target: Tensor, rows: Tensor, source: Tensor) -> None:
    """`target[rows] = source[rows]` for a mask of rows (A,).

    A GPU must not be asked which rows these are. A CPU is asked: wide rows are bound by memory there, and most often
    either all of them are copied or none.
    """
    if target.device.type != "cpu" or target.dim() == 1:
        target.copy_(torch.where(rows.view(-1, *[1] * (target.dim() - 1)), source, target))
    elif rows.all():
        target.copy_(source)
    elif rows.any():
        target[rows] = source[rows]


class Method(Protocol):
    """A batched optimiser."""

    @property
    def per_check(self) -> int: ...  # iterations between two looks

    @property
    def per_step(self) -> int: ...  # iterations that count as one step

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
    attempts: int = 1  # rows that belong to one trial and race
    progress: Callable[[float], None] = field(default=lambda _: None)
    frames: tuple[int, ...] = ()  # steps after which the best points are kept


def drive(method: Method, problem: Problem, start: Tensor, budget: Budget) -> Minimum:
    """Minimise R objectives from `start` (R, D)."""
    best_x, best = start.clone(), start.new_full((len(start),), torch.inf)
    evaluations, finished = torch.zeros_like(best).long(), torch.zeros_like(best).bool()
    index = torch.arange(len(start), device=start.device)
    limit = budget.steps * method.per_step
    cuts = {step * method.per_step: kept for step, kept in rungs(budget.steps, budget.attempts).items()}
    trace: list[Tensor] = []
    film: list[Tensor] = []
    due = [step * method.per_step for step in budget.frames]  # in iterations
    interrupted = moving = False

    state = method.begin(start)
    state.goal[:] = budget.stop_below
    state.share[:] = budget.stop_share
    solved_below = state.goal.clone()
    iterate = Repeated(partial(method.iterate, state, problem(index)), start.device)

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
            film += [best_x.clone()] * sum(at <= iteration for at in due[len(film) :])
            method.look(state)
            if budget.attempts > 1:
                kept = min((kept for at, kept in cuts.items() if at <= iteration), default=budget.attempts)
                state.done |= outraced(best, budget.attempts, kept, solved_below)[index]
            reached = torch.where(state.left, torch.nan, state.best)
            trace.append(torch.full_like(best, torch.nan).index_copy(0, index, reached))
            state.left.copy_(state.done)
            active = torch.nonzero(~state.done)[:, 0]
            if len(active) == 0 or iteration == limit or late:
                break
            # On a GPU smaller tensors mean a new recording, so ended rows leave when they are half or more.
            if len(active) < len(index) if start.device.type == "cpu" else 2 * len(active) <= len(index):
                finished[index] = state.done
                moving = True  # an interrupt in here finds state and index at odds
                index = index[active]
                state.keep(active)
                moving = False
                iterate = Repeated(partial(method.iterate, state, problem(index)), start.device)
            budget.progress(iteration / limit)
        finished[:] = True
    except KeyboardInterrupt:
        interrupted = True
        if not moving:
            collect()
            finished[index] = state.left
    steps = (evaluations - 1).clamp_min(0).add(method.per_step - 1) // method.per_step
    rows = torch.stack(trace, 1) if trace else best[:, None]
    # A frame that was not reached shows where each row ended.
    shown = torch.stack([*film, *[best_x] * (len(due) - len(film))], 1) if due else None
    return Minimum(best_x, best, steps, evaluations, rows, finished, interrupted, shown)


def rungs(steps: int, attempts: int) -> dict[int, int]:
    """After how many steps how many attempts go on: 8 attempts, 80 steps -> {10: 4, 20: 2, 40: 1}."""
    found: dict[int, int] = {}
    rounds = max(0, attempts - 1).bit_length()
    for k in range(rounds):
        attempts = -(-attempts // 2)
        found[max(1, steps >> (rounds - k))] = attempts
    return found


def outraced(best: Tensor, attempts: int, kept: int, solved_below: float | Tensor) -> Tensor:
    """(rows,) True for attempts that end here: not among the `kept` best of their trial, or another has solved it."""
    groups = best.reshape(-1, attempts)  # a row without any value holds infinity
    place = groups.argsort(dim=1, stable=True).argsort(dim=1)
    goals = solved_below.reshape(-1, attempts) if isinstance(solved_below, Tensor) else solved_below
    solved = (groups < goals).any(1, keepdim=True)
    ended: Tensor = (place >= kept) | (solved & (place > 0))
    return ended.flatten()


def winners(best: Tensor, attempts: int) -> Tensor:
    """(T,) the row of each trial's best attempt."""
    groups = best.reshape(-1, attempts)
    return groups.argmin(1) + attempts * torch.arange(len(groups), device=best.device)


def frame_steps(steps: int, frames: int) -> tuple[int, ...]:
    """The steps shown in a strip of pictures: 0, then ever farther apart up to the last: most changes at the start."""
    if frames < 2:
        return (0,) * frames
    far = [round(steps ** (k / (frames - 2))) for k in range(frames - 1)] if frames > 2 else [steps]
    return (0, *sorted(set(far)))
