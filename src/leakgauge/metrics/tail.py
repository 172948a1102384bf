"""The exposed end of many records: what the mean of their scores hides."""

from __future__ import annotations

import math
from collections.abc import Sequence

from leakgauge.metrics.criterion import gain
from leakgauge.types import Tail

_ONE_IN = 20


def tail_of(metric: str, values: Sequence[float], lost: int = 0) -> Tail:
    """The most exposed record, the score that one in twenty reaches, and the median, of records and `lost` ones.

    A lost record (its trial failed) was not recovered: it counts as less exposed than all others. Ranks are rounded
    towards the exposed end, so with fewer than twenty records one in twenty is the worst.
    """
    ordered = sorted(values, key=lambda value: -gain(metric, value))
    records = len(ordered) + lost

    def place(share: float) -> float | None:
        rank = max(1, math.ceil(share * records))
        return ordered[rank - 1] if rank <= len(ordered) else None

    worst = ordered[0] if ordered else None
    return Tail(metric, worst, place(1 / _ONE_IN), place(0.5), records)
