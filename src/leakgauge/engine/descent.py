"""First-order descent on T independent problems at once: Adam, AdamW, SGD with momentum, RMSprop, Adagrad.

All state has the trials first, so trials cannot mix. `sign` replaces each gradient before the rule sees it: "hard" by
its sign, as Inverting Gradients does, "soft" by g / (|g| + mean |g|), which keeps small entries small. The rate falls
tenfold after 3/8, 5/8 and 7/8 of the steps with `decay="steps"`, as published, or along a half cosine.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from leakgauge.engine.driving import Budget, Evaluate, Minimum, Problem, State, drive, overwrite

RULES = ("adam", "adamw", "sgd", "rmsprop", "adagrad")
SIGNS = ("hard", "soft", "none")
DECAYS = ("cosine", "steps", "none")
_BETA1, _BETA2, _EPSILON, _WEIGHT_DECAY, _MOMENTUM, _SMOOTHING = 0.9, 0.999, 1e-8, 0.01, 0.9, 0.99
_ADAGRAD_EPSILON = 1e-10


@dataclass
class _State(State):
    first: Tensor  # (A, D) running moments
    second: Tensor
    taken: Tensor  # (A, 1) steps taken


@dataclass(frozen=True)
class Descent:
    """The method for `drive`."""

    steps: int
    lr: float
    rule: str
    sign: str
    decay: str
    project: Callable[[Tensor], Tensor]
    momentum: float | None
    per_step: int = 1

    @property
    def per_check(self) -> int:
        """Often enough for the first cut of eight attempts, rarely enough not to wait for the device."""
        return max(1, min(50, self.steps // 8))

    def begin(self, start: Tensor) -> _State:
        taken = torch.zeros(len(start), 1, dtype=torch.float64, device=start.device)
        first, second = torch.zeros_like(start), torch.zeros_like(start)
        return _State(**State.common(self.project(start.clone())), first=first, second=second, taken=taken)

    def iterate(self, state: State, evaluate: Evaluate) -> None:
        assert isinstance(state, _State)
        value, gradient = evaluate(state.x)
        state.note(value)
        state.done |= (value < state.goal) | ~torch.isfinite(value)
        x = self.project(self._step(state, _signed(gradient, self.sign)))
        overwrite(state.x, ~state.done, x)
        state.taken += 1

    def look(self, state: State) -> None:
        """Nothing to decide: a row ends by its value alone."""

    def _rate(self, taken: Tensor) -> Tensor:
        if self.decay == "none":
            return torch.full_like(taken, self.lr)
        if self.decay == "cosine":
            return self.lr * 0.5 * (1 + torch.cos(math.pi * taken / self.steps))
        passed = torch.stack([taken >= self.steps * mark for mark in (3 / 8, 5 / 8, 7 / 8)]).sum(0)
        return self.lr * torch.pow(0.1, passed.double())

    def _step(self, state: _State, g: Tensor) -> Tensor:
        """One step of the rule. Equal to torch.optim's (a test says so)."""
        x, lr = state.x, self._rate(state.taken).to(g.dtype)
        if self.rule == "sgd":
            state.first.mul_(_MOMENTUM if self.momentum is None else self.momentum).add_(g)
            return x - lr * state.first
        if self.rule == "adagrad":  # every step so far counts alike, so the rate only falls
            state.second.addcmul_(g, g)
            return x - lr * g / (state.second.sqrt() + _ADAGRAD_EPSILON)
        if self.rule == "rmsprop":
            state.second.mul_(_SMOOTHING).addcmul_(g, g, value=1 - _SMOOTHING)
            state.first.mul_(self.momentum or 0.0).addcdiv_(g, state.second.sqrt().add_(_EPSILON))
            return torch.addcmul(x, state.first, lr, value=-1)
        state.second.mul_(_BETA2).add_(g * g, alpha=1 - _BETA2)
        if self.rule == "adamw":
            x = x * (1 - lr * _WEIGHT_DECAY)
        state.first.mul_(_BETA1).add_(g, alpha=1 - _BETA1)
        mean = state.first / (1 - _BETA1 ** (state.taken + 1)).to(g.dtype)
        scale = (state.second / (1 - _BETA2 ** (state.taken + 1)).to(g.dtype)).sqrt() + _EPSILON
        return x - lr * mean / scale


def _signed(gradient: Tensor, sign: str) -> Tensor:
    if sign == "hard":
        return gradient.sign()
    if sign == "soft":
        size = gradient.abs()
        return gradient / (size + size.mean(1, keepdim=True)).clamp_min(torch.finfo(gradient.dtype).tiny)
    return gradient


def descend(
    problem: Problem,
    start: Tensor,  # (T, D)
    *,
    steps: int,
    lr: float,
    rule: str = "adam",
    sign: str = "none",
    decay: str = "steps",
    project: Callable[[Tensor], Tensor] = lambda x: x,
    momentum: float | None = None,
    **limits: Any,
) -> Minimum:
    """Take `steps` steps from `start`; each trial keeps its best point by its own value.

    `limits` are the other fields of `Budget`.

    The problem's value is what ranks points; its gradient may belong to more (value + a prior). A trial ends early when
    its value falls below `stop_below` and `stop_share` of its first, or is no longer finite. `momentum` is that of
    "sgd", by default 0.9, and of "rmsprop", by default none.
    """
    method = Descent(steps, lr, rule, sign, decay, project, momentum)
    return drive(method, problem, start, Budget(steps, **limits))
