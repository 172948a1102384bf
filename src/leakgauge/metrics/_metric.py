"""What every score says about itself: its direction, its range and what it applies to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from leakgauge.errors import BadInput
from leakgauge.types import CATEGORIES, DataSpec

KINDS = ("image", "tabular", "tokens", "series", "other")
Compare = Callable[..., Tensor]  # (..., C, H, W) truth and reconstruction -> (...)


@dataclass(frozen=True)
class Metric:
    """One score of a reconstruction against the truth, one value per sample.

    Call it with the kind of data: `SSIM(truth, recon, data)` maps (..., *data.shape) twice to (...).
    """

    catalogued: ClassVar[bool] = True  # found by walking the folder

    name: str
    summary: str
    paper: str
    higher_is_better: bool  # for the attacker: better means more was recovered
    low: float  # nothing lies outside low..high for values in [0, 1]
    high: float
    applies_to: tuple[str, ...]  # kinds of data
    compare: Compare  # takes (..., C, H, W); see `__call__` for others
    by_parts: bool = False  # True where it compares the parts of a sample, and takes the kind of data too
    clamped: bool = True  # False for scores that fit a scale first and clamp afterwards

    def fits(self, data: DataSpec) -> bool:
        """Can samples of this kind be scored?"""
        return data.kind in self.applies_to and (not self.by_parts or has_categories(data))

    def __call__(self, truth: Tensor, recon: Tensor, data: DataSpec) -> Tensor:
        if not self.fits(data):
            raise BadInput(
                f"data for metric {self.name!r}",
                allowed=" or ".join(self.applies_to),
                got=data.kind,
                do="score it with mse or psnr",
            )
        if truth.shape != recon.shape:
            raise BadInput(
                f"reconstruction for metric {self.name!r}",
                allowed=f"shaped {tuple(truth.shape)} as the truth",
                got=tuple(recon.shape),
                do="match and reshape it first",
            )
        if self.by_parts:
            return self.compare(truth, recon, data)
        return self.compare(_as_pictures(truth, data), _as_pictures(recon, data))


def has_categories(data: DataSpec) -> bool:
    return any(part.kind == CATEGORIES for part in data.parts)


def _as_pictures(samples: Tensor, data: DataSpec) -> Tensor:
    """(..., *shape) -> (..., C, H, W); a table's row becomes a picture one pixel high."""
    if len(data.shape) == 3:
        return samples
    return samples.reshape(*samples.shape[: samples.dim() - len(data.shape)], 1, 1, -1)
