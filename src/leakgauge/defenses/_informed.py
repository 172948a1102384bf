"""The attacks that know of clipping, and of the noise that comes with it."""

from __future__ import annotations

import dataclasses
from typing import Any

from leakgauge.defenses.gaussian import knows_noise
from leakgauge.types import Attack, TamperingServer


def knows_clipping(attack: Attack, norm: float, scope: str, unit: str) -> tuple[Attack, ...]:
    """`attack` told that each sample's gradient, or the client's update, was clipped to `norm`.

    A tampering server gains nothing: whatever it makes large is shortened.
    """
    if norm == 0 or isinstance(attack, TamperingServer):
        return ()
    each = scope == "layer"
    informed: Attack | None = None
    known = attack.with_fields(clipping=f"norm={norm}/scope={scope}/unit={unit}")
    if unit == "sample":
        informed = known
    elif known:
        for distance in ("scaled-each", "cosine-each") if each else ("scaled",):
            informed = informed or with_choice(known, "distance", distance)
    if each:
        informed = informed or attack.with_fields(fit_scale=True, combine="least-squares")
    else:
        informed = informed or with_choice(attack, "transform", "clip") or attack.with_fields(combine="least-squares")
        informed = informed or attack.with_fields(coefficients="solved")  # a sample's scale is solved for with it
    return (informed,) if informed and informed != attack else ()


def knows_clipped_noise(
    attack: Attack, norm: float, scope: str, unit: str, noise: float, on: str
) -> tuple[Attack, ...]:
    """`attack` told of clipping and of noise with this standard deviation; `on` says on what (see `noise_on`)."""
    clipping = knows_clipping(attack, norm, scope, unit)
    if noise == 0 or isinstance(attack, TamperingServer):
        return clipping
    known = clipping[0] if clipping else attack
    told = knows_noise(known, noise, "l2")
    restated = tuple(better for a in told if (better := a.with_fields(noise_on=on)))
    # An attack on directions has no likelihood, only more smoothness, which hurts where the noise is small: play both.
    return restated or tuple(dict.fromkeys((*clipping, *told)))


def with_choice(attack: Attack, field: str, value: Any) -> Attack | None:
    """`attack` with this value, or None where the field or the choice is not there."""
    for own in dataclasses.fields(attack):
        if own.name == field and value in own.metadata.get("choices", ()):
            return attack.with_fields(**{field: value})
    return None
