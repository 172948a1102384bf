"""How long a run of recipes may take: what no longer fits is not begun, and is counted."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leakgauge.errors import Unreadable
from leakgauge.lab.reproduce.recipe import Piece
from leakgauge.reading.sealed import opened


@dataclass
class Budget:
    """Seconds, from now on. A piece is begun while some are left, unless it is known to take longer than that.

    Known is how long the same took at another seed or with other victims, as the folder of finished runs says. Of a
    piece without such a neighbour only the clock decides, so the last ones may end after the budget.
    """

    seconds: float
    now: Callable[[], float] = time.monotonic
    left: int = 0  # pieces not begun for want of time
    _known: dict[str, tuple[int, float]] = field(default_factory=dict)  # kind -> the most victims, their seconds
    _read: set[Path] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._end = self.now() + self.seconds

    @property
    def is_open(self) -> bool:
        return self.now() < self._end

    def allows(self, piece: Piece, runs: Path) -> bool:
        """Whether this piece may be begun now; counted if not."""
        fits = self.is_open and self.now() + self._expected(piece, runs) <= self._end
        self.left += not fits
        return fits

    def _expected(self, piece: Piece, runs: Path) -> float:
        """Seconds it will take; 0 if nothing is known."""
        for path in set(runs.glob("*.json")) - self._read:
            self._read.add(path)
            self._learn(path)
        kind, victims = _kind(piece.as_dict())
        most, seconds = self._known.get(kind, (1, 0.0))
        return seconds * max(1.0, victims / most)  # side by side, fewer victims are hardly sooner done

    def _learn(self, path: Path) -> None:
        """From a finished run; a file that cannot be read says nothing."""
        try:
            plain = opened(path)
            kind, victims = _kind(plain.get("scenario") or plain["measurement"])
            self._known[kind] = max(self._known.get(kind, (0, 0.0)), (victims, float(plain["seconds"])))
        except (Unreadable, LookupError, TypeError, ValueError, AttributeError):
            return


def _kind(settings: Mapping[str, Any]) -> tuple[str, int]:
    """All settings but the seed and the number of victims, and that number."""
    rest = {name: value for name, value in settings.items() if name not in ("seed", "trials")}
    return json.dumps(rest, sort_keys=True), int(settings.get("trials", 1))
