"""How many pairs of pictures a page may hold, and how large, so that it stays small enough to mail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from leakgauge.report.pictures import SHOWN_SIDE

PAIRS_PER_CELL = 12
BYTES = 7_000_000  # for all pictures together; the page with its tables and curves stays below 10 MB
_SIDES = (SHOWN_SIDE, 96, 64, 48, 32)
_SHOWN_IN_ALL = 240  # in the open; the rest waits behind a click
_LEAST = 4
_MORE_PER_CELL = 60
_PNG, _MARKUP = 120, 1000  # bytes: the head of a PNG, and the words and the curve around a pair


@dataclass(frozen=True)
class Allowance:
    side: int  # px, the largest a picture is shown at
    shown: int  # pairs per cell in the open
    more: int  # pairs per cell behind a click


def allowance(cells: int, shape: Sequence[int]) -> Allowance:
    """For so many cells of samples (C, H, W); counts as if no picture could be compressed."""
    cells = max(1, cells)

    def fitting(side: int) -> int:
        _, height, width = shape
        channels = 3 if shape[0] == 3 else 1
        scale = min(1.0, side / max(height, width))
        picture = channels * round(height * scale) * round(width * scale) + _PNG
        return int(BYTES / (2 * picture * 4 / 3 + _MARKUP) / cells)

    side = next((s for s in _SIDES if fitting(s) >= _LEAST), _SIDES[-1])
    pairs = fitting(side)
    shown = max(1, min(PAIRS_PER_CELL, pairs, max(_LEAST, _SHOWN_IN_ALL // cells)))
    return Allowance(side, shown, max(0, min(_MORE_PER_CELL, pairs - shown)))
