"""One thing that can be said of an update before any attack is run."""

from __future__ import annotations

from dataclasses import dataclass

OPTIMISER = "optimiser"  # of a clue that can say that another one was at work
INFO, CAUTION, EXPOSED, WRONG = SEVERITIES = ("info", "caution", "exposed", "wrong")


@dataclass(frozen=True)
class Clue:
    """What was looked at, what was seen, and what follows."""

    id: str  # "first-layer"
    what: str  # for a table: "first layer"
    value: str  # as seen
    meaning: str  # what it allows or forbids, and what to do
    severity: str  # "exposed": something can be read exactly; "wrong": the update is not what is claimed
