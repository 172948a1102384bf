"""What a check is: something that gives every layer it understands a score and a sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from leakgauge.checks._received import Received
from leakgauge.checks.suspicion import HIGH


@dataclass(frozen=True)
class Measured:
    """One layer's score in one check; the evidence is what a person reads if the score is too high."""

    score: float
    evidence: str


@dataclass(frozen=True)
class Check:
    """A public module of this folder defines one; the folder is walked."""

    id: str
    measure: Callable[[Received], Mapping[str, Measured]]  # by layer; a layer that cannot be judged is left out
    do: str  # what the client should do
    severity: str = HIGH
    severe: str = ""  # the threshold from which a caution becomes a grave finding, if there is one
    everywhere: bool = False  # True if only all layers together are a sign, so that the smallest score counts

    @property
    def field(self) -> str:
        """The check's field in `Thresholds`."""
        return self.id.replace("-", "_")
