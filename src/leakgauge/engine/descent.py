"""First-order descent on T independent problems at once: Adam, AdamW, SGD with momentum, RMSprop.

All state is (T, D), so trials cannot mix. `signed` replaces each gradient by its sign before the rule sees it, as
Inverting Gradients does. The rate falls tenfold after 3/8, 5/8 and 7/8 of the steps unless `decay` is off.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from leakgauge.engine.lbfgs import Minimum, Problem

RULES = ("adam", "adamw", "sgd", "rmsprop")
CHECK_EVERY = 50  # steps between looks at which trials have ended: the only place where the host waits
_BETA1, _BETA2, _EPSILON, _WEIGHT_DECAY, _MOMENTUM, _SMOOTHING = 0.9, 0.999, 1e-8, 0.01, 0.9, 0.99


def descend(
    problem: Problem,
    start: Tensor,  # (T, D)
    *,
    steps: int,
    lr: float,
    rule: str = "adam",
    signed: bool = False,
    decay: bool = True,
    project: Callable[[Tensor], Tensor] = lambda x: x,
    stop_below: float = -math.inf,
    progress: Callable[[float], None] = lambda _: None,
) -> Minimum:
    """Take `steps` steps from `start`; each trial keeps its best point by its own value.

    The problem's value is what ranks points; its gradient may belong to more (value + a prior). A trial ends early when
    its value falls below `stop_below` or is no longer finite.
    """
    best_x, best = start.clone(), torch.full_like(start[:, 0], torch.inf)
    evaluations = torch.zeros(len(start), dtype=torch.long, device=start.device)
    index = torch.arange(len(start), device=start.device)
    x, first, second = project(start.clone()), torch.zeros_like(start), torch.zeros_like(start)
    trace: list[Tensor] = []
    evaluate = problem(index)
    for step in range(steps + 1):
        value, gradient = evaluate(x)
        evaluations[index] += 1
        better = value < best[index]
        best_x[index] = torch.where(better[:, None], x, best_x[index])
        best[index] = torch.where(better, value, best[index])
        if step % CHECK_EVERY == 0 or step == steps:
            row = torch.full_like(best, torch.nan)
            row[index] = best[index]
            trace.append(row)
            going = torch.nonzero((value >= stop_below) & torch.isfinite(value))[:, 0]
            if len(going) == 0 or step == steps:
                break
            if len(going) < len(index):
                index, x, gradient = index[going], x[going], gradient[going]
                first, second = first[going], second[going]
                evaluate = problem(index)
            progress(step / steps)
        g = gradient.sign() if signed else gradient
        x, first, second = _step(x, g, first, second, step, _rate(lr, step, steps, decay), rule)
        x = project(x)
    return Minimum(best_x, best, evaluations - 1, evaluations, torch.stack(trace, 1))


def _rate(lr: float, step: int, steps: int, decay: bool) -> float:
    passed = sum(step >= steps * mark for mark in (3 / 8, 5 / 8, 7 / 8)) if decay else 0
    return lr * 0.1**passed


def _step(
    x: Tensor, g: Tensor, first: Tensor, second: Tensor, step: int, lr: float, rule: str
) -> tuple[Tensor, Tensor, Tensor]:
    """One step of the rule; `first` and `second` are its running moments. Equal to torch.optim's (a test says so)."""
    if rule == "sgd":
        first = g if step == 0 else _MOMENTUM * first + g
        return x - lr * first, first, second
    if rule == "rmsprop":
        second = _SMOOTHING * second + (1 - _SMOOTHING) * g * g
        return x - lr * g / (second.sqrt() + _EPSILON), first, second
    if rule == "adamw":
        x = x * (1 - lr * _WEIGHT_DECAY)
    first = _BETA1 * first + (1 - _BETA1) * g
    second = _BETA2 * second + (1 - _BETA2) * g * g
    mean = first / (1 - _BETA1 ** (step + 1))
    scale = (second / (1 - _BETA2 ** (step + 1))).sqrt() + _EPSILON
    return x - lr * mean / scale, first, second
