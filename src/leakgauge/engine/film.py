"""A few points of a search on its way, for a strip of pictures: always as many, whenever the rows end."""

from __future__ import annotations

import torch
from torch import Tensor


def frame_steps(steps: int, frames: int) -> tuple[int, ...]:
    """Step 0, then ever farther apart up to the last: most changes at the beginning."""
    if frames < 2:
        return (0,) * frames
    far = [round(steps ** (k / (frames - 2))) for k in range(frames - 1)] if frames > 2 else [steps]
    return (0, *sorted(set(far)))


class Film:
    """Keeps the best points of all rows at the first look at or after each of these steps."""

    def __init__(self, steps: tuple[int, ...], per_step: int) -> None:
        self.steps = steps
        self._due = [step * per_step for step in steps]  # in iterations
        self._frames: list[Tensor] = []

    def look(self, iteration: int, best_x: Tensor) -> None:
        """`best_x` (R, D) of all rows, also of those that have ended."""
        while len(self._frames) < len(self._due) and iteration >= self._due[len(self._frames)]:
            self._frames.append(best_x.clone())

    def developed(self, best_x: Tensor) -> Tensor | None:
        """(R, F, D): what was not reached shows where each row ended; None where no frame was asked for."""
        if not self.steps:
            return None
        return torch.stack([*self._frames, *[best_x] * (len(self.steps) - len(self._frames))], 1)
