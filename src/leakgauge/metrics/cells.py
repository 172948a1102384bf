"""The share of a sample's values that are right: of a table's cells, of a text's tokens.

A category is right if it is the very one. A number is right within a fiftieth of its range, which is half a year of a
column of ages from 0 to 25; masks are public and do not count.
"""

from __future__ import annotations

import torch
from torch import Tensor

from leakgauge.metrics import ALL_KINDS, Metric
from leakgauge.types import CATEGORIES, MASK, DataSpec

TOLERANCE = 0.02  # of the range of a number


def cells(truth: Tensor, recon: Tensor, data: DataSpec) -> Tensor:
    """(..., *shape) twice -> (...)."""
    true, found = data.split(truth), data.split(recon)
    right = []
    for part in (p for p in data.parts if p.kind != MASK):
        theirs, ours = true[part.name], found[part.name]
        if part.kind == CATEGORIES:
            same = part.decode(theirs) == part.decode(ours)
            right.append(same.reshape(*theirs.shape[:-1], -1))
        else:
            right.append((theirs - ours).abs() <= TOLERANCE)
    return torch.cat(right, -1).to(truth).mean(-1)


CELLS = Metric(
    name="cells",
    summary="share of a sample's values that are right",
    paper="Vero et al. 2023 (TabLeak)",
    higher_is_better=True,
    low=0.0,
    high=1.0,
    applies_to=ALL_KINDS,
    compare=cells,
    by_parts=True,
)
