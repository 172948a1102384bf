"""What an inspection has to say: one suspicion per layer and check, and how sure it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

HIGH = "high"  # tampering: do not train on it
CAUTION = "caution"  # leaks by its nature, or is unusual; no proof


@dataclass(frozen=True)
class Suspicion:
    """One check that a layer did not pass."""

    id: str  # of the check, such as "identical-rows"
    layer: str
    evidence: str  # what was seen, in numbers
    severity: str  # "high" or "caution"
    do: str  # what the client should do
    score: float
    threshold: float  # the score from which the check speaks

    def as_dict(self) -> dict[str, Any]:
        return dict(vars(self))
