"""Rows that hold the samples which leave a unit off, from units that are on for the whole batch.

Behind a ReLU comes a linear layer with weights V (m, H). What a sample sends back to unit j is V_j . d, with one vector
d (m) for all units, if the unit is on, and nothing if it is off. So the rows of units that are on for everybody are
V_j . M with one matrix M (m, D). Whoever knows M knows what every row would be if its unit were on for everybody, and
the difference to what it is holds the samples that leave it off: a unit that is off for one sample gives it away just
as one that is on for one sample does.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_TRIES = 400  # random choices of rows, each as many as M has, until others agree with them
_WITNESSES = 4  # rows that must agree with a choice
_AMONG = 4  # rows are drawn from this many times what a choice takes: those that are most likely on
_SKETCH = 4  # random combinations of a row's entries, in which rows are compared first
_AGREES = 1e-4  # relative: rounding is far below it, a sample that is missing far above
_TINY = 1e-300


@dataclass(frozen=True)
class OffRows:
    """As the rows of the layer's gradient, but each over the samples that leave its unit off."""

    weight: Tensor  # (H, D)
    bias: Tensor  # (H,)
    size: Tensor  # (H,) what was added up in an entry, for its rounding


def off_rows(weight: Tensor, bias: Tensor, behind: Tensor, likely: Tensor) -> OffRows | None:
    """From the gradients (H, D) and (H,) and V (m, H); `likely` (H,) is larger the likelier a unit is on for everybody.

    None where no set of rows agrees on M: too few units are on for all samples, or the update was changed.
    """
    outgoing = behind.T  # (H, m)
    width = outgoing.shape[1]
    order = likely.argsort(descending=True)[: _AMONG * (width + _WITNESSES)]
    if len(order) < width + _WITNESSES:
        return None
    entries = torch.cat((weight, bias[:, None]), 1)
    directions = torch.randn(entries.shape[1], _SKETCH, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    sketch = entries @ directions.to(entries)
    chosen = _agreeing(sketch, outgoing, order)
    if chosen is None:
        return None
    matrix = torch.linalg.lstsq(outgoing[chosen], entries[chosen]).solution  # (m, D + 1)
    missing = outgoing @ matrix - entries
    size = outgoing.abs() @ matrix[:, -1].abs() + bias.abs()
    return OffRows(missing[:, :-1], missing[:, -1], size)


def _agreeing(sketch: Tensor, outgoing: Tensor, order: Tensor) -> Tensor | None:
    """The units (A,) whose rows are those of one M, found by a few of them and then all that agree."""
    width = outgoing.shape[1]
    g = torch.Generator().manual_seed(2)
    scale = sketch[order].norm(dim=1).median()
    for number in range(_TRIES):
        # The likeliest alone come first; then more and more are drawn from.
        pool = min(len(order), width + _WITNESSES + number // 8)
        drawn = order[torch.randperm(pool, generator=g)[: width + _WITNESSES].to(order.device)]
        few, witnesses = drawn[:width], drawn[width:]
        matrix = torch.linalg.lstsq(outgoing[few], sketch[few]).solution
        if float((outgoing[witnesses] @ matrix - sketch[witnesses]).norm()) > _AGREES * float(scale):
            continue
        for _ in range(3):  # all that agree fit M more closely, and so more of them are seen to
            miss = (outgoing @ matrix - sketch).norm(dim=1)
            chosen = torch.nonzero(miss <= _AGREES * sketch.norm(dim=1).clamp_min(_TINY))[:, 0]
            if len(chosen) < width + _WITNESSES:
                break
            matrix = torch.linalg.lstsq(outgoing[chosen], sketch[chosen]).solution
        if len(chosen) >= width + _WITNESSES:
            return chosen
    return None
