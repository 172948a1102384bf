"""Adam with a warm-up, Langevin noise and a pull towards what the attempts at one trial agree on (Yin et al. 2021).

A method for `engine.driving.drive`. Attempts of one trial influence each other through their consensus, attempts of
different trials never do. Noise and consensus are renewed at every look, outside of what a GPU records and replays.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.engine.driving import Evaluate, State
from leakgauge.engine.randomness import normal

_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8

Agree = Callable[[Tensor, Tensor], Tensor]  # (points (A, D), whose they are (A,)) -> what each should resemble (A, D)


@dataclass
class _State(State):
    first: Tensor  # (A, D) running moments
    second: Tensor
    taken: Tensor  # (A, 1) steps taken
    noise: Tensor  # (A, per_check, D) for the steps until the next look
    agreed: Tensor  # (A, D)
    row: Tensor  # (A,) number among all rows: trial x attempts + attempt


@dataclass(frozen=True)
class GroupDescent:
    """The method; rows lie trial by trial, `attempts` each."""

    steps: int
    lr: float
    warm_up: int  # steps over which the rate rises
    noise: float  # standard deviation of what is added, in units of the rate
    pull: float  # weight of the mean square distance to the consensus
    soft_sign: bool  # Adam sees g / (|g| + mean |g|), which few very steep pixels cannot rule
    project: Callable[[Tensor], Tensor]
    agree: Agree
    seeds: tuple[int, ...]
    attempts: int
    per_check: int = 10
    per_step: int = 1

    def begin(self, start: Tensor) -> _State:
        common = State.common(self.project(start.clone()))
        rows = torch.arange(len(start), device=start.device)
        state = _State(
            **common,
            first=torch.zeros_like(start),
            second=torch.zeros_like(start),
            taken=torch.zeros(len(start), 1, dtype=torch.float64, device=start.device),
            noise=start.new_zeros(len(start), self.per_check if self.noise else 0, start.shape[1]),
            agreed=torch.zeros_like(start),
            row=rows,
        )
        self._renew(state, block=0)
        return state

    def iterate(self, state: State, evaluate: Evaluate) -> None:
        assert isinstance(state, _State)
        value, gradient = evaluate(state.x)
        state.note(value)
        state.done |= ~torch.isfinite(value)
        if self.pull:
            gradient = gradient + (2 * self.pull / gradient.shape[1]) * (state.x - state.agreed)
        if self.soft_sign:
            size = gradient.abs()
            gradient = gradient / (size + size.mean(1, keepdim=True)).clamp_min(torch.finfo(size.dtype).tiny)
        rate = self._rate(state.taken).to(gradient.dtype)
        x = state.x - rate * self._direction(state, gradient)
        if self.noise:
            slot = (state.taken.long() % self.per_check)[..., None].expand(-1, 1, x.shape[1])
            x = x + rate * self.noise * state.noise.gather(1, slot)[:, 0]
        state.x.copy_(torch.where(state.done[:, None], state.x, self.project(x)))
        state.taken += 1

    def look(self, state: State) -> None:
        assert isinstance(state, _State)
        taken = int(state.taken.max())  # rows that go on have all taken equally many
        self._renew(state, block=taken // self.per_check + 1)

    def _renew(self, state: _State, block: int) -> None:
        trials = state.row // self.attempts
        if self.noise:
            for place, row in enumerate(state.row.tolist()):
                seed, attempt = self.seeds[row // self.attempts], row % self.attempts
                state.noise[place] = normal([seed], f"noise/{attempt}/{block}", state.noise.shape[1:])[0].to(state.x)
        if self.pull:
            state.agreed.copy_(self.agree(state.x, trials))

    def _rate(self, taken: Tensor) -> Tensor:
        rising = ((taken + 1) / self.warm_up).clamp_max(1) if self.warm_up else torch.ones_like(taken)
        return self.lr * rising * 0.5 * (1 + torch.cos(math.pi * taken / self.steps))

    def _direction(self, state: _State, g: Tensor) -> Tensor:
        """Adam's step for a rate of one."""
        state.first.mul_(_BETA1).add_(g, alpha=1 - _BETA1)
        state.second.mul_(_BETA2).add_(g * g, alpha=1 - _BETA2)
        mean = state.first / (1 - _BETA1 ** (state.taken + 1)).to(g.dtype)
        scale = (state.second / (1 - _BETA2 ** (state.taken + 1)).to(g.dtype)).sqrt() + _EPSILON
        return mean / scale
