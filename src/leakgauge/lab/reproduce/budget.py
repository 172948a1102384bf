"""How long a run of recipes may take: a piece that no longer fits is not started, and is counted."""

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
    """Seconds, from now on. A piece is started while some are left, unless it is known to take longer than that.

    A time is known if the folder of finished runs has the same piece with another seed or number of victims. Without
    a known time the clock alone decides, so the last pieces may end after the budget.
    """

    seconds: float
    now: Callable[[], float] = time.monotonic
    left: int = 0  # pieces not started for lack of time
    _known: dict[str, tuple[int, float]] = field(default_factory=dict)  # kind -> the most victims, their seconds
    _read: set[Path] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._end = self.now() + self.seconds

    @property
    def is_open(self) -> bool:
        return self.now() < self._end

    def allows(self, piece: Piece, runs: Path) -> bool:
        """Whether this piece may start now; counted if not."""
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
        return seconds * max(1.0, victims / most)  # victims run side by side: fewer of them take hardly less time

    def _learn(self, path: Path) -> None:
        """Learn the time of a finished run; a file that cannot be read is skipped."""
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
