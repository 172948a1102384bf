"""Clipping: what is longer than a bound is shortened to it, g min(1, C / |g|).

`unit="sample"` clips every sample's gradient before they are averaged, `unit="client"` the update as it leaves the
client. `scope="whole"` measures the length over all tensors together, `scope="layer"` clips each tensor for itself.
Clipping bounds what one sample or client can move. It hides little and promises nothing without noise.

How to beat it. Clipping hides a scale and keeps every direction: gradients are compared after the best common scale, or
the best scale of each tensor if each was clipped for itself. A clipped batch is a mean with other weights; gradient
matching that knows the bound clips its own samples likewise. A common scale leaves the first-layer ratio as it is; if
weight and bias were clipped apart it loses the length of the input, which it then takes from the other layers. A
tampering server with larger gradients gains nothing: they are shortened to the same bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from leakgauge.defenses._clipping import SAMPLE, SCOPES, UNITS, WHOLE, Clipping, KnownClipping
from leakgauge.settings import setting


@dataclass(frozen=True)
class Clip(KnownClipping):
    """Example: `--defense clip:norm=1,unit=sample`"""

    name: ClassVar[str] = "clip"
    summary: ClassVar[str] = "shorten each sample's gradient, or the whole update, to a bound"
    paper: ClassVar[str] = "Abadi et al. 2016; Li et al. 2022 (GGL)"
    strength: ClassVar[str] = "norm"

    norm: float = setting(0.1, "largest length that passes; 0 clips nothing", low=0)
    unit: str = setting(SAMPLE, "what is clipped: each sample's gradient, or the update", choices=UNITS)
    scope: str = setting(WHOLE, "length over all tensors, or each tensor for itself", choices=SCOPES)

    @property
    def clipping(self) -> Clipping:
        return Clipping(self.norm, self.scope, self.unit)
