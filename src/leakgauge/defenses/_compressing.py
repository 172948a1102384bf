"""What all compressions tell an attacker: their public rule, and that smoothness must decide what was not sent."""

from __future__ import annotations

from leakgauge.types import Attack

_BESIDE_A_COSINE = 1e-3  # weight of total variation for attacks that match directions; ten times their usual one


def knows_compression(
    attack: Attack, rule: str, smoothness: float, beside_cosine: float = _BESIDE_A_COSINE, readable: bool = True
) -> tuple[Attack, ...]:
    """`attack` told by which rule the update was shortened, if it can use that.

    `smoothness` is the weight of total variation beside a squared distance, `beside_cosine` that beside a cosine. Where
    the last layer is not `readable` the label is searched for with the inputs. Analytic attacks fit all rows together,
    which averages the error.
    """
    informed = attack.with_fields(compression=rule, tv=smoothing(attack, smoothness, beside_cosine))
    if informed is not None and not readable:
        informed = informed.with_fields(labels="optimise") or informed
    informed = informed or attack.with_fields(combine="least-squares")
    return (informed,) if informed else ()


def smoothing(attack: Attack, smoothness: float, beside_cosine: float = _BESIDE_A_COSINE) -> float:
    """The weight of total variation that fits the attack's distance, or its own if that is larger.

    Without a choice of distances it measures variation as those do who match directions: as a mean over pixels.
    """
    wanted = beside_cosine if getattr(attack, "distance", "cosine") == "cosine" else smoothness
    return max(wanted, getattr(attack, "tv", 0.0))
