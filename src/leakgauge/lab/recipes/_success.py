"""What counts as a failed trial, as a success of the attack's own objective, and as a recognised record."""

from __future__ import annotations

from functools import cache

from leakgauge import catalog
from leakgauge.metrics.criterion import CRITERIA, Scored
from leakgauge.types import Finding


def is_failed(finding: Finding) -> bool:
    """Did the trial raise or diverge?"""
    return finding.error is not None or "diverged" in finding.flags


def succeeded(finding: Finding) -> bool:
    """Did the attack's own objective end below its threshold? Without one it never succeeds in this sense.

    An absolute one may lie above where the attack starts, which counts; a relative one asks for a step.
    """
    threshold = _absolute_threshold(finding.spec)
    if threshold is None:
        return finding.solved is True
    return finding.objective is not None and finding.objective < threshold


@cache
def _absolute_threshold(spec: str) -> float | None:
    """As papers state it; a cosine is measured against nothing, so that its threshold is absolute by itself."""
    attack = catalog.build("attacks", spec)
    if getattr(attack, "distance", None) == "cosine":
        return getattr(attack, "threshold", None)
    return getattr(attack, "absolute_threshold", None)


def recognised(record: Scored) -> bool:
    """The criterion of an audit: SSIM of a picture, MSE of a table's row, which has no SSIM."""
    picture = CRITERIA["image"]
    return (picture if picture.metric in record else CRITERIA["tabular"]).met(record)
