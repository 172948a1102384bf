"""What all compressions tell an attacker: their public rule, and that smoothness must decide what was not sent."""

from __future__ import annotations

from leakgauge.matching.compression import Compression
from leakgauge.matching.problem import Matching, innermost
from leakgauge.types import Fact

_BESIDE_A_COSINE = 1e-3  # weight of total variation for attacks that match directions; ten times their usual one


def compressed(
    problem: Matching, rule: Compression, smoothness: float, beside_cosine: float = _BESIDE_A_COSINE
) -> Matching:
    """The problem of an attacker who knows by which rule the update was shortened."""
    return smoothed(problem, smoothness, beside_cosine).replace(compression=rule)


def smoothed(problem: Matching, smoothness: float, beside_cosine: float = _BESIDE_A_COSINE) -> Matching:
    """The problem with the weight of total variation that fits the attack's distance, or its own if that is larger.

    `smoothness` is the weight beside a squared distance, `beside_cosine` that beside a cosine.
    """
    return problem.smoother(beside_cosine if problem.by_direction else smoothness)


def with_labels_searched(problem: Matching) -> Matching:
    """The labels are searched for with the inputs, where the attack can and nobody revealed them."""
    if not problem.searches_labels or problem.observation.knows(Fact.LABELS):
        return problem
    return innermost(problem, lambda inside: inside.replace(labels=None)).replace(labels=None)
