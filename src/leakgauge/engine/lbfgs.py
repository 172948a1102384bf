"""L-BFGS on T independent problems at once: each has its own memory, line search, stopping and counters.

With `line_search="fixed"` a trial follows `torch.optim.LBFGS` without line search, run on it alone (a test says so). A
search takes one evaluation per iteration: a trial that shortens its step does so while its neighbours go on.

With a line search an objective that begins below 1 is measured in units of where it begins: else the first step would
be lost in rounding, no curvature be large enough to remember, and every slope pass for none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.engine.curvature import LEAST, Curvature
from leakgauge.engine.driving import Budget, Evaluate, Minimum, Problem, State, drive
from leakgauge.engine.line_search import Trial, judge

_SMALLEST_UNIT = 1e-20
INNER = 20  # iterations that make one "step", as one optimiser.step(closure) of published code does


@dataclass
class _State(State):
    base_x: Tensor  # (A, D) the point last accepted
    base_value: Tensor
    base_gradient: Tensor
    direction: Tensor
    moves: Tensor  # (A,) points accepted
    idle: Tensor  # (A,) looks since the best value last fell by 1 %
    mark: Tensor  # (A,) the best value `idle` compares with
    unit: Tensor  # (A,) of the objective
    memory: Curvature
    line: Trial

    def keep(self, rows: Tensor) -> None:
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(self, name, value[rows])
        self.memory.keep(rows)
        self.line.keep(rows)


@dataclass(frozen=True)
class Lbfgs:
    """The method for `drive`."""

    lr: float = 1.0
    history: int = 100
    line_search: str = "fixed"
    tolerance: float = 1e-9
    patience: int | None = None
    per_check: int = INNER
    per_step: int = INNER

    def begin(self, start: Tensor) -> _State:
        nothing = start.new_zeros(len(start))
        count = torch.zeros(len(start), dtype=torch.long, device=start.device)
        return _State(
            **State.common(start),
            base_x=start.clone(),
            base_value=torch.full_like(nothing, torch.inf),
            base_gradient=torch.zeros_like(start),
            direction=torch.zeros_like(start),
            moves=count,
            idle=count.clone(),
            mark=torch.full_like(nothing, torch.inf),
            unit=torch.ones_like(nothing),
            memory=Curvature.empty(start, self.history),
            line=Trial.new(start, self.line_search),
        )

    def iterate(self, state: State, evaluate: Evaluate) -> None:
        """Accept the point or choose another length; where accepted, remember what it taught and turn."""
        assert isinstance(state, _State)
        value, gradient = evaluate(state.x)
        state.note(value)
        first = state.moves == 0
        open_rows = ~state.done
        along = (gradient * state.direction).sum(1)
        rule = judge(state.line, self.line_search, value, along, gradient, open_rows & ~first)
        begun = open_rows & first & torch.isfinite(value) & torch.isfinite(gradient).all(1)
        accept = rule.accept | begun
        # A start without a value, or no way down even from the bare gradient: this row has ended.
        lost = (open_rows & first & ~begun) | (
            rule.give_up & ((state.memory.count == 0) | (self.line_search == "fixed"))
        )
        state.done |= lost
        reset = rule.give_up & ~lost  # the memory misleads: back to the base and down its gradient
        state.memory.forget(reset)

        x, low = state.x, state.line.low
        if self.line_search == "wolfe":  # the best point of the bracket: known value and gradient
            row = rule.take_low[:, None]
            x = torch.where(row, state.base_x + low[:, :1] * state.direction, x)
            value, gradient = (
                torch.where(rule.take_low, low[:, 1], value),
                torch.where(row, state.line.low_gradient, gradient),
            )
            accept = accept | rule.take_low
        x = torch.where(reset[:, None], state.base_x, x)
        value = torch.where(reset, state.base_value, value)
        gradient = torch.where(reset[:, None], state.base_gradient, gradient)
        self._turn(state, x, value, gradient, accept | reset, accept & ~first, first)

    def _turn(
        self, state: _State, x: Tensor, value: Tensor, gradient: Tensor, rows: Tensor, learn: Tensor, first: Tensor
    ) -> None:
        """From the point accepted (where `rows`): next direction, next length."""
        if self.line_search != "fixed":
            begun = value.clamp(_SMALLEST_UNIT, 1.0)
            state.unit.copy_(torch.where(rows & first, begun, state.unit))
        direction = state.memory.store_and_direct(
            x - state.base_x, gradient - state.base_gradient, learn, gradient, LEAST * state.unit
        )
        slope = (gradient * direction).sum(1)
        uphill = slope >= 0  # rounding spoilt the memory: fall back on the gradient
        direction = torch.where(uphill[:, None], -gradient, direction)
        slope = torch.where(uphill, -(gradient**2).sum(1), slope)
        # torch shortens its very first step only; with a line search so is every step without a memory.
        fresh = first if self.line_search == "fixed" else first | (state.memory.count == 0)
        short = torch.minimum(1.0 / gradient.abs().sum(1).clamp_min(1e-30), 1.0 / state.unit)
        length = torch.where(fresh, short, torch.ones_like(short)) * self.lr
        flat = slope > -self.tolerance * self.tolerance * state.unit
        state.done |= rows & ((value < state.goal) | flat)
        state.line.begin(rows, length, slope, value, gradient)
        state.base_x.copy_(torch.where(rows[:, None], x, state.base_x))
        state.base_gradient.copy_(torch.where(rows[:, None], gradient, state.base_gradient))
        state.base_value.copy_(torch.where(rows, value, state.base_value))
        state.direction.copy_(torch.where(rows[:, None], direction, state.direction))
        state.moves += rows
        ahead = state.base_x + state.line.length[:, None] * state.direction
        state.x.copy_(torch.where(state.done[:, None], state.x, ahead))

    def look(self, state: State) -> None:
        """Count the looks without progress; too many, and the row has ended."""
        assert isinstance(state, _State)
        if self.patience is None:
            return
        improved = state.best < 0.99 * state.mark
        state.mark = torch.where(improved, state.best, state.mark)
        state.idle = torch.where(improved, 0, state.idle + 1)
        state.done |= state.idle > self.patience


def minimise(
    problem: Problem,
    start: Tensor,  # (T, D)
    *,
    steps: int,
    lr: float = 1.0,
    history: int = 100,
    line_search: str = "fixed",
    stop_below: float | Tensor = -math.inf,
    stop_share: float | Tensor = math.inf,
    tolerance: float = 1e-9,
    patience: int | None = None,
    attempts: int = 1,
    until: float = math.inf,
    progress: Callable[[float], None] = lambda _: None,
    frames: tuple[int, ...] = (),
) -> Minimum:
    """Minimise T objectives.

    A trial ends when its value falls below `stop_below` and `stop_share` of its first value, its slope vanishes, it
    diverges, it has not improved by 1 % for `patience` steps, or its steps are spent; ended trials cost nothing more.
    """
    method = Lbfgs(lr, history, line_search, tolerance, patience)
    return drive(method, problem, start, Budget(steps, stop_below, stop_share, until, attempts, progress, frames))
