"""How far to go along a direction: for many rows at once, one evaluation per row and iteration.

Each rule gets value and slope at the point tried and answers, per row: accept it, try another length, or give up.
  fixed   the length given, always (what published attack code does)
  armijo  halve it until the value has fallen; a hundredth of slack lets noise pass
  wolfe   strong Wolfe conditions by bracketing and zooming (Nocedal and Wright 2006, algorithms 3.5 and 3.6)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.engine.driving import Rows, overwrite

RULES = ("armijo", "wolfe", "fixed")
_FALL = 1e-4  # of the promised decrease
_FLATTER = 0.9  # slope left over
_SLACK = 0.01
_MOST_HALVINGS = 12
_MOST_TRIES = 25
_FARTHEST = 10.0  # times the last length


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
