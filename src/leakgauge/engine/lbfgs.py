"""L-BFGS on T independent problems at once: each has its own history, step, stopping and counters.

With `line_search="fixed"` a trial follows `torch.optim.LBFGS` without line search, run on it alone (a test says so).
With "armijo" a step that does not lower the objective enough is shortened; the trial spends its next evaluation on the
shorter step while its neighbours go on. Directions come from the compact form of the inverse Hessian (Byrd, Nocedal and
Schnabel 1994): a handful of batched products instead of two loops over the history.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

# Given the indices of some trials, returns x (A, D) -> (value (A,), gradient (A, D)) for just those.
Problem = Callable[[Tensor], Callable[[Tensor], tuple[Tensor, Tensor]]]

INNER = 20  # iterations that make one "step", as one optimiser.step(closure) of published code does
_CURVATURE = 1e-10  # pairs with less curvature are not remembered
_ARMIJO = 1e-4
_SLACK = 0.01
_MOST_HALVINGS = 12


@dataclass(frozen=True)
class Minimum:
    """Per trial: the best point seen by its own objective, and what it took."""

    x: Tensor  # (T, D)
    value: Tensor  # (T,)
    steps: Tensor  # (T,) in units of up to INNER iterations
    evaluations: Tensor  # (T,)
    trace: Tensor  # (T, S) best value after each S-th check; nan once the trial has ended


@dataclass
class _State:
    """Everything of the trials still running; leading axis A."""

    index: Tensor
    x: Tensor
    value: Tensor
    gradient: Tensor
    direction: Tensor
    stride: Tensor  # (A,) step length along the direction
    slope: Tensor  # (A,) gradient . direction
    base_x: Tensor
    base_value: Tensor
    base_gradient: Tensor
    history: _History
    iterations: Tensor  # (A,) accepted moves
    halvings: Tensor
    idle: Tensor  # (A,) steps since the best value last fell by 1 %
    mark: Tensor  # (A,) the best value `idle` compares with
    done: Tensor

    def keep(self, rows: Tensor) -> None:
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(self, name, value[rows])
        self.history.keep(rows)


@dataclass
class _History:
    """The last m pairs of each trial in a ring, with their inner products kept up to date."""

    pairs: Tensor  # (A, 2m, D): the s of slot i at row 2i, its y at row 2i + 1
    gram: Tensor  # (A, 2m, 2m) inner products of these rows, float64: the small systems are ill-conditioned
    count: Tensor  # (A,) pairs stored so far
    gamma: Tensor  # (A,) scale of the initial inverse Hessian
    filled: int = 0  # no trial has used a slot beyond this one; known to the host without asking the device

    @classmethod
    def empty(cls, x: Tensor, size: int) -> _History:
        a, d = x.shape
        return cls(
            pairs=x.new_zeros(a, 2 * size, d),
            gram=torch.zeros(a, 2 * size, 2 * size, dtype=torch.float64, device=x.device),
            count=torch.zeros(a, dtype=torch.long, device=x.device),
            gamma=x.new_ones(a),
        )

    @property
    def size(self) -> int:
        return self.pairs.shape[1] // 2

    def keep(self, rows: Tensor) -> None:
        self.pairs, self.gram = self.pairs[rows], self.gram[rows]
        self.count, self.gamma = self.count[rows], self.gamma[rows]

    def forget(self, rows: Tensor) -> None:
        """Empty the memory of the trials where `rows` (A,) is True."""
        self.count = torch.where(rows, 0, self.count)
        self.gamma = torch.where(rows, torch.ones_like(self.gamma), self.gamma)

    def store_and_direct(self, s: Tensor, y: Tensor, rows: Tensor, g: Tensor) -> Tensor:
        """Remember the pair of each trial where `rows` is True, then give -H g for every trial (-g if none is).

        The pairs are by far the largest thing here, so they are read twice an iteration and no more.
        """
        curvature = (s * y).sum(1)
        rows = rows & (curvature > _CURVATURE)
        a, slot = torch.arange(len(rows), device=rows.device), self.count % self.size
        for row, value in ((2 * slot, s), (2 * slot + 1, y)):
            self.pairs[a, row] = torch.where(rows[:, None], value, self.pairs[a, row])
        self.filled = min(self.filled + 1, self.size)
        used = self.pairs[:, : 2 * self.filled]
        products = torch.bmm(used, torch.stack((s, y, g), 2)).double()  # (A, 2m', 3): first reading
        for row, column in ((2 * slot, 0), (2 * slot + 1, 1)):
            fresh = torch.where(rows[:, None], products[:, :, column], self.gram[a, row, : 2 * self.filled])
            self.gram[a, row, : 2 * self.filled] = fresh
            self.gram[a, : 2 * self.filled, row] = fresh
        self.gamma = torch.where(rows, curvature / (y * y).sum(1).clamp_min(torch.finfo(y.dtype).tiny), self.gamma)
        self.count = self.count + rows.long()
        coefficients = self._coefficients(products[:, :, 2])
        return torch.bmm(coefficients[:, None].to(g.dtype), used)[:, 0] - self.gamma[:, None] * g  # second reading

    def _coefficients(self, products: Tensor) -> Tensor:
        """Weights (A, 2m') of the remembered rows in -H g + gamma g, from their products with g: all of it small."""
        m = self.filled
        # Slot of the i-th oldest pair. Slots not in use get a unit diagonal and zeros, so that they drop out.
        order = (torch.arange(m, device=products.device) + torch.where(self.count >= m, self.count, 0)[:, None]) % m
        used = torch.arange(m, device=products.device) < self.count.clamp_max(m)[:, None]  # (A, m)
        both = used[:, :, None] & used[:, None, :]
        gram = self.gram[:, : 2 * m, : 2 * m]
        rows, columns = order[:, :, None].expand(-1, -1, m), order[:, None, :].expand(-1, m, -1)
        sy = gram[:, 0::2, 1::2].gather(1, rows).gather(2, columns).where(both, 0.0)
        yy = gram[:, 1::2, 1::2].gather(1, rows).gather(2, columns).where(both, 0.0)
        r = sy.triu() + torch.diag_embed((~used).double())
        p = products[:, 0::2].gather(1, order).where(used, 0.0)  # s . g
        q = products[:, 1::2].gather(1, order).where(used, 0.0)  # y . g
        gamma = self.gamma.double()[:, None]
        u = torch.linalg.solve_triangular(r, p[..., None], upper=True)[..., 0]
        w = sy.diagonal(dim1=1, dim2=2) * u + gamma * (torch.bmm(yy, u[..., None])[..., 0] - q)
        v = torch.linalg.solve_triangular(r.transpose(1, 2), w[..., None], upper=False)[..., 0]
        weights = torch.stack(
            (torch.zeros_like(v).scatter(1, order, -v), torch.zeros_like(u).scatter(1, order, gamma * u)), 2
        )
        return weights.flatten(1)


def minimise(
    problem: Problem,
    start: Tensor,  # (T, D)
    *,
    steps: int,
    lr: float = 1.0,
    history: int = 100,
    line_search: str = "fixed",
    stop_below: float = -math.inf,
    tolerance: float = 1e-9,
    patience: int | None = None,
    progress: Callable[[float], None] = lambda _: None,
) -> Minimum:
    """Minimise T objectives. A trial ends when its value falls below `stop_below`, its slope vanishes, it diverges,
    it has not improved by 1 % for `patience` steps, or its steps are spent; ended trials cost nothing more."""
    best_x, best = start.clone(), torch.full_like(start[:, 0], torch.inf)
    evaluations = torch.zeros(len(start), dtype=torch.long, device=start.device)
    trace: list[Tensor] = []

    state = _begin(start, history)
    evaluate = problem(state.index)
    state.value, state.gradient = evaluate(state.x)
    limit = steps * INNER
    for iteration in range(limit + 1):
        evaluations[state.index] += 1
        _judge(state, line_search, lr, tolerance, stop_below)
        better = state.value < best[state.index]  # False for nan
        best_x[state.index] = torch.where(better[:, None], state.x, best_x[state.index])
        best[state.index] = torch.where(better, state.value, best[state.index])
        if iteration % INNER == 0:  # the only place where the host waits for the device
            _count_idle(state, best, patience)
            row = torch.full_like(best, torch.nan)
            row[state.index] = best[state.index]
            trace.append(row)
            active = torch.nonzero(~state.done)[:, 0]
            if len(active) == 0 or iteration == limit:
                break
            if len(active) < len(state.done):
                state.keep(active)
                evaluate = problem(state.index)
            progress(iteration / limit)
        state.x = torch.where(state.done[:, None], state.x, state.base_x + state.stride[:, None] * state.direction)
        state.value, state.gradient = evaluate(state.x)
    return Minimum(best_x, best, (evaluations - 1 + INNER - 1) // INNER, evaluations, torch.stack(trace, 1))


def _begin(start: Tensor, history: int) -> _State:
    t = len(start)
    zero, count = start.new_zeros(t), torch.zeros(t, dtype=torch.long, device=start.device)
    return _State(
        index=torch.arange(t, device=start.device), x=start.clone(), value=zero, gradient=torch.zeros_like(start),
        direction=torch.zeros_like(start), stride=zero.clone(), slope=zero.clone(), base_x=start.clone(),
        base_value=torch.full_like(zero, torch.inf), base_gradient=torch.zeros_like(start),
        history=_History.empty(start, history), iterations=count,
        halvings=count.clone(), idle=count.clone(), mark=torch.full_like(zero, torch.inf),
        done=torch.zeros(t, dtype=torch.bool, device=start.device),
    )  # fmt: skip


def _judge(state: _State, line_search: str, lr: float, tolerance: float, stop_below: float) -> None:
    """Accept the point just evaluated and choose the next direction, or shorten the step that led to it."""
    first = state.iterations == 0
    finite = torch.isfinite(state.value) & torch.isfinite(state.gradient).all(1)
    if line_search == "armijo":
        low_enough = state.value <= state.base_value * (1 + _SLACK) + _ARMIJO * state.stride * state.slope
        shorten = ~first & ~(finite & low_enough) & ~state.done & (state.halvings < _MOST_HALVINGS)
        gave_up = ~first & ~(finite & low_enough) & ~state.done & ~shorten
        state.done |= gave_up & (state.history.count == 0)  # not even the gradient leads down: at a minimum
        reset = gave_up & ~state.done  # the memory misleads: back to the base and down its gradient
        state.history.forget(reset)
        for name in ("x", "value", "gradient"):
            old, new = getattr(state, f"base_{name}"), getattr(state, name)
            mask = reset if old.dim() == 1 else reset[:, None]
            setattr(state, name, torch.where(mask, old, new))
        accept = ~shorten & ~state.done
    else:
        shorten = reset = torch.zeros_like(first)
        state.done |= ~finite
        accept = ~state.done

    direction = state.history.store_and_direct(
        state.x - state.base_x, state.gradient - state.base_gradient, accept & ~first & ~reset, state.gradient
    )
    slope = (state.gradient * direction).sum(1)
    uphill = slope >= 0  # rounding spoilt the memory: fall back on the gradient
    direction = torch.where(uphill[:, None], -state.gradient, direction)
    slope = torch.where(uphill, -(state.gradient**2).sum(1), slope)
    # torch shortens its very first step only; with a line search so is every step without a memory.
    fresh = first | (state.history.count == 0) if line_search == "armijo" else first
    stride = torch.where(
        fresh,
        (1.0 / state.gradient.abs().sum(1).clamp_min(1e-30)).clamp_max(1.0) * lr,
        torch.full_like(slope, lr),
    )
    state.done |= accept & ((state.value < stop_below) | (slope > -tolerance * tolerance))

    row = accept[:, None]
    state.base_x = torch.where(row, state.x, state.base_x)
    state.base_gradient = torch.where(row, state.gradient, state.base_gradient)
    state.base_value = torch.where(accept, state.value, state.base_value)
    state.direction = torch.where(row, direction, state.direction)
    state.slope = torch.where(accept, slope, state.slope)
    state.stride = torch.where(accept, stride, state.stride * 0.5)
    state.halvings = torch.where(accept, 0, state.halvings + 1)
    state.iterations = state.iterations + accept.long()


def _count_idle(state: _State, best: Tensor, patience: int | None) -> None:
    if patience is None:
        return
    now = best[state.index]
    improved = now < 0.99 * state.mark
    state.mark = torch.where(improved, now, state.mark)
    state.idle = torch.where(improved, 0, state.idle + 1)
    state.done |= state.idle > patience
