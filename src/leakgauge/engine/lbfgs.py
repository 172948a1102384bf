"""L-BFGS on T independent problems at once: each has its own memory, line search, stopping and counters.

With `line_search="fixed"` a trial follows `torch.optim.LBFGS` without line search, run on it alone (a test says so). A
line search takes one evaluation per iteration: a trial that shortens its step does so while its neighbours go on.

With a line search an objective that begins below 1 is measured in units of its first value: else the first step would
be lost in rounding, no curvature be large enough to remember, and every slope count as flat.

Each rule of a line search gets value and slope at the point tried and answers, per row: accept it, try another length,
or give up.
  fixed   the length given, always (what published attack code does)
  armijo  halve it until the value has fallen; a hundredth of slack lets noise pass
  wolfe   strong Wolfe conditions by bracketing and zooming (Nocedal and Wright 2006, algorithms 3.5 and 3.6)

The inverse Hessian is used in its compact form (Byrd, Nocedal and Schnabel 1994): a handful of batched products instead
of two loops over the pairs. Its triangular factor R = triu(S'Y) is kept as its inverse: a new pair adds one column, and
dropping the oldest pair drops one row and column, so slots of a ring can be overwritten in any order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from leakgauge.engine.driving import Budget, Evaluate, Minimum, Problem, Rows, State, drive, overwrite

RULES = ("armijo", "wolfe", "fixed")
_FALL = 1e-4  # of the promised decrease
_FLATTER = 0.9  # slope left over
_SLACK = 0.01
_MOST_HALVINGS = 12
_MOST_TRIES = 25
_FARTHEST = 10.0  # times the last length
_SMALLEST_UNIT = 1e-20
INNER = 20  # iterations that make one "step", as one optimiser.step(closure) of published code does
_LEAST = 1e-10  # pairs with less curvature are not remembered, where the objective is of the size of 1


@dataclass
class Curvature(Rows):
    """The last m pairs of each row, and the direction -H g that they give; changed in place."""

    pairs: Tensor  # (A, 2m, D): s of slot i at 2i, y at 2i + 1
    inverse: Tensor  # (A, m, m) of triu(S'Y) in slots; zero outside those in use. float64: it is ill-conditioned
    y_products: Tensor  # (A, m, m) y_i . y_j
    curvatures: Tensor  # (A, m) s_i . y_i
    count: Tensor  # (A,) pairs stored since the memory was last emptied
    gamma: Tensor  # (A,) scale of the initial inverse Hessian

    @classmethod
    def empty(cls, x: Tensor, size: int) -> Curvature:
        rows, width = x.shape

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(rows, *shape, dtype=torch.float64, device=x.device)

        pairs, count = x.new_zeros(rows, 2 * size, width), zeros().long()
        return cls(pairs, zeros(size, size), zeros(size, size), zeros(size), count, x.new_ones(rows))

    def forget(self, rows: Tensor) -> None:
        """Empty the memory where `rows` (A,) is True."""
        for tensor in (self.inverse, self.y_products, self.curvatures, self.count):
            tensor.mul_(~rows.view(-1, *[1] * (tensor.dim() - 1)))
        self.gamma.masked_fill_(rows, 1.0)

    def store_and_direct(self, s: Tensor, y: Tensor, rows: Tensor, g: Tensor, least: Tensor | float = _LEAST) -> Tensor:
        """Remember the pair of each row where `rows` is True, then give -H g for every row (-g if it has no pairs).

        Pairs with no more curvature than `least` are not remembered.

        The pairs are by far the largest thing here, so they are read twice an iteration and no more.
        """
        curvature = (s * y).sum(1)
        rows = rows & (curvature > least)
        a, slot = torch.arange(len(rows), device=rows.device), self.count % self.curvatures.shape[1]
        for place, value in ((2 * slot, s), (2 * slot + 1, y)):
            self.pairs[a, place] = torch.where(rows[:, None], value, self.pairs[a, place])
        # The first reading. This way round, long rows times long rows, is four times as fast on a CPU as the other.
        products = torch.bmm(torch.stack((y, g), 1), self.pairs.transpose(1, 2)).double()  # (A, 2, 2m)
        self._add(a, slot, curvature.double(), products[:, 0, 0::2], products[:, 0, 1::2], rows)
        size = (y * y).sum(1).clamp_min(torch.finfo(y.dtype).tiny)
        overwrite(self.gamma, rows, curvature / size)
        self.count += rows
        weights = self._weights(products[:, 1, 0::2], products[:, 1, 1::2]).to(g.dtype)
        return torch.bmm(weights[:, None], self.pairs)[:, 0] - self.gamma[:, None] * g  # the second reading

    def _add(self, a: Tensor, slot: Tensor, curvature: Tensor, sy: Tensor, yy: Tensor, rows: Tensor) -> None:
        """A new pair in `slot`: its products with all s and y are given. Only where `rows` is True."""
        new = rows[:, None]
        here = slot[:, None] == torch.arange(sy.shape[1], device=slot.device)  # (A, m)
        column = self.inverse[a, :, slot]
        self.inverse[a, slot] = torch.where(new, 0.0, self.inverse[a, slot])  # whatever was in the slot drops out
        self.inverse[a, :, slot] = torch.where(new, 0.0, column)
        added = torch.bmm(self.inverse, (-sy / curvature[:, None])[:, :, None])[:, :, 0]
        self.inverse[a, :, slot] = torch.where(new, torch.where(here, 1 / curvature[:, None], added), column)
        # Slots that are not in use hold stale pairs: their products must not enter.
        yy = torch.where(here | (self.curvatures != 0), yy, 0.0)
        fresh = torch.where(new, yy, self.y_products[a, slot])
        self.y_products[a, slot] = fresh
        self.y_products[a, :, slot] = fresh
        self.curvatures.copy_(torch.where(new & here, curvature[:, None], self.curvatures))

    def _weights(self, sg: Tensor, yg: Tensor) -> Tensor:
        """Weights (A, 2m) of the remembered vectors in -H g + gamma g, from their products with g: all of it small."""
        gamma = self.gamma.double()[:, None]
        u = torch.bmm(self.inverse, sg[:, :, None])[:, :, 0]
        w = self.curvatures * u + gamma * (torch.bmm(self.y_products, u[:, :, None])[:, :, 0] - yg)
        v = torch.bmm(self.inverse.transpose(1, 2), w[:, :, None])[:, :, 0]
        return torch.stack((-v, gamma * u), 2).flatten(1)


@dataclass
class Trial(Rows):
    """Where each row stands on its line. phi(t) is the value at base + t x direction."""

    length: Tensor  # (A,) t of the point being tried
    slope: Tensor  # (A,) phi'(0)
    value: Tensor  # (A,) phi(0)
    tries: Tensor  # (A,)
    # For wolfe: the best point of the bracket so far, and its other end; before there is one, the point tried last.
    zooming: Tensor
    low: Tensor  # (A, 3): t, phi, phi'
    high: Tensor
    low_gradient: Tensor  # (A, D), or (A, 0) if not needed

    @classmethod
    def new(cls, x: Tensor, rule: str) -> Trial:
        zero, ends = x.new_zeros(len(x)), x.new_zeros(len(x), 3)
        infinite = torch.full_like(zero, torch.inf)
        low_gradient = x.new_zeros(x.shape if rule == "wolfe" else (len(x), 0))
        return cls(zero, zero.clone(), infinite, zero.long(), zero.bool(), ends, ends.clone(), low_gradient)

    def begin(self, rows: Tensor, length: Tensor, slope: Tensor, value: Tensor, gradient: Tensor) -> None:
        """A new line where `rows` is True."""
        overwrite(self.length, rows, length)
        overwrite(self.slope, rows, slope)
        overwrite(self.value, rows, value)
        self.tries *= ~rows
        if self.low_gradient.shape[1]:
            self.zooming &= ~rows
            overwrite(self.low, rows, torch.stack((torch.zeros_like(value), value, slope), 1))
            overwrite(self.low_gradient, rows, gradient)


@dataclass(frozen=True)
class Answer:
    """Per row: take the point tried; take the best of the bracket (wolfe); give up. Otherwise try `Trial.length`."""

    accept: Tensor
    take_low: Tensor
    give_up: Tensor


def judge(trial: Trial, rule: str, value: Tensor, slope: Tensor, gradient: Tensor, open_rows: Tensor) -> Answer:
    """`value`, `slope` along the direction and `gradient` at the points just tried; only `open_rows` are searching."""
    finite = torch.isfinite(value) & torch.isfinite(gradient).all(1)
    never = torch.zeros_like(finite)
    if rule == "fixed":
        return Answer(open_rows & finite, never, open_rows & ~finite)
    if rule == "armijo":
        low_enough = finite & (value <= trial.value * (1 + _SLACK) + _FALL * trial.length * trial.slope)
        accept = open_rows & low_enough
        give_up = open_rows & ~low_enough & (trial.tries >= _MOST_HALVINGS)
        shorter = open_rows & ~accept & ~give_up
        overwrite(trial.length, shorter, 0.5 * trial.length)
        trial.tries += shorter
        return Answer(accept, never, give_up)
    return _wolfe(trial, torch.where(finite, value, torch.inf), slope, gradient, finite, open_rows)


def _wolfe(trial: Trial, value: Tensor, slope: Tensor, gradient: Tensor, finite: Tensor, open_rows: Tensor) -> Answer:
    t = trial.length
    here = torch.stack((t, value, torch.where(finite, slope, 0.0)), 1)
    first = trial.tries == 0
    fell = value <= trial.value + _FALL * t * trial.slope
    flat = slope.abs() <= -_FLATTER * trial.slope
    worse = ~fell | ((value >= trial.low[:, 1]) & (trial.zooming | ~first))
    accept = open_rows & ~worse & flat
    searching = open_rows & ~accept

    # Not yet bracketed: the point is the far end, or the near end of a bracket that reaches back, or too near.
    opens_high = searching & ~trial.zooming & worse
    opens_low = searching & ~trial.zooming & ~worse & (slope >= 0)
    onward = searching & ~trial.zooming & ~worse & (slope < 0)
    # Bracketed: the point replaces the far end, or becomes the best one.
    narrows = searching & trial.zooming & worse
    better = searching & trial.zooming & ~worse
    turned = better & (slope * (trial.high[:, 0] - trial.low[:, 0]) >= 0)

    last = trial.low.clone()
    overwrite(trial.high, opens_high | narrows, here)
    overwrite(trial.high, opens_low | turned, last)
    to_low = opens_low | better | onward
    overwrite(trial.low, to_low, here)
    overwrite(trial.low_gradient, to_low, gradient)
    trial.zooming |= opens_high | opens_low

    farther = _minimum(last, here, t + 0.01 * (t - last[:, 0]), _FARTHEST * t)
    inside = _inside(trial.low, trial.high)
    trial.length.copy_(torch.where(onward, farther, torch.where(searching, inside, t)))
    trial.tries += searching
    width = (trial.high[:, 0] - trial.low[:, 0]).abs()
    closed = trial.zooming & (width <= 1e-9 * trial.low[:, 0].clamp_min(1e-6))
    spent = searching & ((trial.tries >= _MOST_TRIES) | closed)
    moved = trial.low[:, 0] > 0
    return Answer(accept, spent & moved, spent & ~moved)


def _inside(low: Tensor, high: Tensor) -> Tensor:
    """Between the ends of a bracket, at least a tenth away from both."""
    left, right = torch.minimum(low[:, 0], high[:, 0]), torch.maximum(low[:, 0], high[:, 0])
    margin = 0.1 * (right - left)
    return _minimum(low, high, left + margin, right - margin)


def _minimum(a: Tensor, b: Tensor, least: Tensor, most: Tensor) -> Tensor:
    """Of the cubic through two points with their slopes, held to [least, most]; the middle where there is none."""
    swap = (a[:, 0] > b[:, 0])[:, None]
    a, b = torch.where(swap, b, a), torch.where(swap, a, b)
    d1 = a[:, 2] + b[:, 2] - 3 * (a[:, 1] - b[:, 1]) / (a[:, 0] - b[:, 0])
    square = d1 * d1 - a[:, 2] * b[:, 2]
    d2 = square.clamp_min(0).sqrt()
    found = b[:, 0] - (b[:, 0] - a[:, 0]) * (b[:, 2] + d2 - d1) / (b[:, 2] - a[:, 2] + 2 * d2)
    good = torch.isfinite(found) & (square >= 0)
    return torch.where(good, torch.minimum(torch.maximum(found, least), most), 0.5 * (least + most))


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
        return _State(
            **State.common(start),
            base_x=start.clone(),
            base_value=torch.full_like(nothing, torch.inf),
            base_gradient=torch.zeros_like(start),
            direction=torch.zeros_like(start),
            moves=nothing.long(),
            idle=nothing.long(),
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
        no_way = rule.give_up & ((state.memory.count == 0) | (self.line_search == "fixed"))
        lost = (open_rows & first & ~begun) | no_way
        state.done |= lost
        reset = rule.give_up & ~lost  # the memory misleads: back to the base and down its gradient
        state.memory.forget(reset)

        x = state.x
        if self.line_search == "wolfe":  # the best point of the bracket: known value and gradient
            row, low = rule.take_low[:, None], state.line.low
            x = torch.where(row, state.base_x + low[:, :1] * state.direction, x)
            value = torch.where(rule.take_low, low[:, 1], value)
            gradient = torch.where(row, state.line.low_gradient, gradient)
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
            overwrite(state.unit, rows & first, value.clamp(_SMALLEST_UNIT, 1.0))
        s, y = x - state.base_x, gradient - state.base_gradient
        direction = state.memory.store_and_direct(s, y, learn, gradient, _LEAST * state.unit)
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
        overwrite(state.base_x, rows, x)
        overwrite(state.base_gradient, rows, gradient)
        overwrite(state.base_value, rows, value)
        overwrite(state.direction, rows, direction)
        state.moves += rows
        overwrite(state.x, ~state.done, state.base_x + state.line.length[:, None] * state.direction)

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
    tolerance: float = 1e-9,
    patience: int | None = None,
    **limits: Any,
) -> Minimum:
    """Minimise T objectives; `limits` are the other fields of `Budget`.

    A trial ends when its value falls below `stop_below` and `stop_share` of its first value, its slope vanishes, it
    diverges, it has not improved by 1 % for `patience` steps, or its steps are spent; ended trials cost nothing more.
    """
    return drive(Lbfgs(lr, history, line_search, tolerance, patience), problem, start, Budget(steps, **limits))
