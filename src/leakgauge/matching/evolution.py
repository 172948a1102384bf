"""CMA-ES for many rows at once: each has its own strategy and its own draws, all populations are evaluated together.

Hansen and Ostermeier 2001, in the `cma` package. It needs values only, so a second derivative is never taken, and an
objective with steps in it (sorting, counting) is no trouble.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from leakgauge.engine.driving import Minimum
from leakgauge.engine.randomness import generator
from leakgauge.errors import MissingExtra
from leakgauge.types import Progress

_FIRST_SPREAD = 0.5


def evolve(
    values: Callable[[Tensor], Callable[[Tensor], Tensor]],  # rows (B,) -> (z (B, D) -> (B,))
    start: Tensor,  # (R, D)
    draws: Sequence[tuple[int, str]],  # seed and role of each row's random numbers
    *,
    generations: int,
    population: int,
    until: float = math.inf,
    progress: Progress = lambda _: None,
) -> Minimum:
    """Each row's best point by its own value after `generations`, or when its strategy sees no more to gain."""
    cma, rows = _cma(), len(start)
    begun = start.double().cpu().numpy()
    strategies = [_strategy(cma, x, population, *own) for x, own in zip(begun, draws, strict=True)]
    best_x, best = start.clone(), start.new_full((rows,), torch.inf)
    taken = torch.zeros(rows, dtype=torch.long, device=start.device)
    finished = torch.zeros(rows, dtype=torch.bool, device=start.device)
    trace: list[Tensor] = []
    active = list(range(rows))
    interrupted = False
    try:
        for generation in range(generations):
            asked = [strategies[row].ask() for row in active]
            points = torch.from_numpy(np.asarray(asked)).to(start)  # (A, P, D)
            owner = torch.tensor(active, device=start.device).repeat_interleave(population)
            found = values(owner)(points.flatten(0, 1)).view(len(active), population)
            found = torch.where(torch.isfinite(found), found, torch.full_like(found, torch.finfo(found.dtype).max))
            for row, mine, scores in zip(active, asked, found.double().cpu().tolist(), strict=True):
                strategies[row].tell(mine, scores)
            _note(best_x, best, torch.tensor(active, device=start.device), points, found)
            taken[active] += 1
            trace.append(torch.full_like(best, torch.nan).index_copy(0, owner[::population], best[owner[::population]]))
            active = [row for row in active if not strategies[row].stop()]
            if not active or time.monotonic() >= until:
                break
            progress((generation + 1) / generations)
        finished[:] = True
    except KeyboardInterrupt:
        interrupted = True
        finished[:] = True
        finished[active] = False
    kept = torch.stack(trace, 1) if trace else best[:, None]
    return Minimum(best_x, best, taken, taken * population, kept, finished, interrupted)


def _note(best_x: Tensor, best: Tensor, rows: Tensor, points: Tensor, found: Tensor) -> None:
    value, which = found.min(1)
    better = value < best[rows]
    best_x[rows[better]] = points[better, which[better]]
    best[rows[better]] = value[better]


def _strategy(cma: ModuleType, start: Any, population: int, seed: int, role: str) -> Any:
    draws = generator(seed, role)

    def randn(*shape: int) -> Any:
        return torch.randn(shape, generator=draws, dtype=torch.float64).numpy()

    options = {
        "popsize": population,
        "randn": randn,
        "seed": math.nan,  # nan: leave NumPy's own generator alone
        "verbose": -9,
        "verb_log": 0,
        "verb_disp": 0,
    }
    return cma.CMAEvolutionStrategy(start, _FIRST_SPREAD, options)


def _cma() -> ModuleType:
    try:
        import cma
    except ImportError as error:
        raise MissingExtra("cma-es needs the package cma; run: pip install 'leakgauge[generative]'") from error
    module: ModuleType = cma
    return module
