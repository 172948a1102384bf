"""Successive halving: several attempts at one trial start together, and the worse half is given up, again and again.

Attempts are judged by their own objective alone. Rows of one trial lie side by side: row = trial x attempts + attempt.
Eight attempts so cost two and a half full ones. (Jamieson and Talwalkar 2016.)
"""

from __future__ import annotations

import torch
from torch import Tensor


def rungs(steps: int, attempts: int) -> dict[int, int]:
    """After how many steps how many attempts go on: 8 attempts, 80 steps -> {10: 4, 20: 2, 40: 1}."""
    found: dict[int, int] = {}
    rounds = max(0, attempts - 1).bit_length()
    for k in range(rounds):
        attempts = -(-attempts // 2)
        found[max(1, steps >> (rounds - k))] = attempts
    return found


def outrun(best: Tensor, attempts: int, kept: int, solved_below: float | Tensor) -> Tensor:
    """(rows,) True for attempts that end here: not among the `kept` best of their trial, or a brother has solved it."""
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
