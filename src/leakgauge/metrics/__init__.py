"""Scores: pure functions with their direction and range, and what every score says about itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from leakgauge.errors import BadInput
from leakgauge.types import CATEGORIES, DataSpec

IMAGES, ALL_KINDS = ("image",), ("image", "tabular", "tokens", "series", "other")


@dataclass(frozen=True)
class Metric:
    """One score of a reconstruction against the truth, one value per sample.

    Call it with the kind of data: `SSIM(truth, recon, data)` maps (..., *data.shape) twice to (...).
    """

    catalogued: ClassVar[bool] = True  # found by walking the folder

    name: str
    summary: str
    paper: str
    compare: Callable[..., Tensor]  # (..., C, H, W) truth and reconstruction -> (...)
    applies_to: tuple[str, ...] = IMAGES  # kinds of data
    low: float = 0.0  # nothing lies outside low..high for values in [0, 1]
    high: float = 1.0
    higher_is_better: bool = False  # for the attacker: better means more was recovered
    by_parts: bool = False  # True if it compares the parts of a sample, and takes the kind of data too
    clamped: bool = True  # False for scores that fit a scale first and clamp afterwards

    def fits(self, data: DataSpec) -> bool:
        """Can samples of this kind be scored?"""
        return data.kind in self.applies_to and (not self.by_parts or has_categories(data))

    def __call__(self, truth: Tensor, recon: Tensor, data: DataSpec) -> Tensor:
        """A row of a table becomes a picture one pixel high."""
        if not self.fits(data):
            what, allowed = f"data for metric {self.name!r}", " or ".join(self.applies_to)
            raise BadInput(what, allowed=allowed, got=data.kind, do="score it with mse or psnr")
        if truth.shape != recon.shape:
            what, allowed = f"reconstruction for metric {self.name!r}", f"shaped {tuple(truth.shape)} as the truth"
            raise BadInput(what, allowed=allowed, got=tuple(recon.shape), do="match and reshape it first")
        if self.by_parts:
            return self.compare(truth, recon, data)
        if len(data.shape) != 3:
            truth, recon = (t.reshape(*t.shape[: t.dim() - len(data.shape)], 1, 1, -1) for t in (truth, recon))
        return self.compare(truth, recon)


def has_categories(data: DataSpec) -> bool:
    return any(part.kind == CATEGORIES for part in data.parts)
