"""A check gives layers scores; a suspicion is a score that reached its threshold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from leakgauge.checks._received import Received

HIGH = "high"  # tampering: do not train on it
CAUTION = "caution"  # leaks by its nature, or is unusual; no proof

Found = Iterator[tuple[str, float, str]]  # layer, score, evidence; a layer that cannot be judged is left out


@dataclass(frozen=True)
class Measured:
    """One layer's score in one check; the evidence is what a person reads if the score is too high."""

    score: float
    evidence: str


@dataclass(frozen=True)
class Check:
    """A public module of this folder makes some with `check`; the folder is searched for them."""

    id: str
    scores: Callable[[Received], Found]
    do: str  # what the client should do
    severity: str = HIGH
    severe: str = ""  # the threshold from which a caution becomes a grave finding, if there is one
    everywhere: bool = False  # True if only all layers together are a sign, so that the smallest score counts

    @property
    def field(self) -> str:
        """The check's field in `Thresholds`."""
        return self.id.replace("-", "_")

    def measure(self, received: Received) -> Mapping[str, Measured]:
        return {layer: Measured(score, evidence) for layer, score, evidence in self.scores(received)}


def check(do: str, **others: Any) -> Callable[[Callable[[Received], Found]], Check]:
    """Makes a `Check` of a function that yields scores: `drift(received)` becomes the check "drift"."""
    return lambda scores: Check(scores.__name__.replace("_", "-"), scores, do, **others)


caution = partial(check, severity=CAUTION)  # the same, of a check that proves nothing


@dataclass(frozen=True)
class Suspicion:
    """One check that a layer did not pass."""

    id: str  # of the check, such as "identical-rows"
    layer: str
    evidence: str  # what was seen, in numbers
    severity: str  # "high" or "caution"
    do: str  # what the client should do
    score: float
    threshold: float  # the score from which the check reports

    def as_dict(self) -> dict[str, Any]:
        return dict(vars(self))
