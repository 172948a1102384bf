"""When does a record count as recovered, and which of two scores is better? Said here, and compared nowhere else.

    >>> rule = criterion_of(data)  # of pictures
    >>> str(rule), rule.met({"ssim": 0.61}), rule.met({"ssim": None})
    ('ssim>=0.6', True, False)

A record that an attack does not claim has no score, or None: it meets no criterion, beats nothing and comes last.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from torch import Tensor

from leakgauge import catalog
from leakgauge.metrics import has_categories
from leakgauge.types import DataSpec

Scored = Mapping[str, float | None]  # one record: what it scored in each metric, None where it is not claimed
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_RULE = re.compile(rf"\s*([\w-]+)\s*[<>]=?\s*({_NUMBER})\s*")


@dataclass(frozen=True)
class Criterion:
    """A score in `metric` at the threshold or beyond it, in the direction in which more was recovered."""

    metric: str
    threshold: float

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """From the words of a report ("ssim>=0.6"); None if they are no criterion."""
        found = _RULE.fullmatch(text)
        known = found is not None and found[1] in catalog.find("metrics")
        return cls(found[1], float(found[2])) if found is not None and known else None

    def __str__(self) -> str:
        return f"{self.metric}{'>=' if self.higher_is_better else '<='}{self.threshold:g}"

    @property
    def higher_is_better(self) -> bool:
        """For the attacker: does a higher score mean that more was recovered?"""
        return bool(catalog.get("metrics", self.metric).higher_is_better)

    @property
    def symbol(self) -> str:
        return "≥" if self.higher_is_better else "≤"

    def met(self, record: Scored) -> bool:
        return self.reached(record.get(self.metric))

    def reached(self, score: float | None) -> bool:
        return gain(self.metric, score) >= gain(self.metric, self.threshold)

    def hits(self, scores: Tensor) -> Tensor:
        """Scores of any shape -> bool of the same shape; NaN is no hit."""
        return scores >= self.threshold if self.higher_is_better else scores <= self.threshold


CELLS = Criterion("cells", 0.9)  # where some values are whole numbers
CRITERIA = {"image": Criterion("ssim", 0.6), "tabular": Criterion("mse", 1e-3)}
# What no guess explains: 10 dB nearer than the record's own thumbnail; a hundredth of the error that counts.
_UNMISTAKABLE = {"image": Criterion("detail", 10.0), "tabular": Criterion("mse", 1e-5)}


def criterion_of(data: DataSpec) -> Criterion:
    """When a record of this kind of data counts as recovered."""
    return CELLS if has_categories(data) else CRITERIA.get(data.kind, CRITERIA["tabular"])


def is_unmistakable(data: DataSpec, record: Scored) -> bool:
    """Is the record alone, without any control, beyond what a guess reaches?"""
    rule = Criterion("cells", 1.0) if has_categories(data) else _UNMISTAKABLE.get(data.kind, _UNMISTAKABLE["tabular"])
    return rule.met(record)


def gain(metric: str, score: float | None) -> float:
    """The score so that more is always better for the attacker; less than every other where there is none."""
    if score is None or math.isnan(score):
        return -math.inf
    return score if catalog.get("metrics", metric).higher_is_better else -score


def beats(metric: str, record: Scored, other: Scored) -> bool:
    """Is the record's score in this metric better than the other's? So it is where only the other has none."""
    return gain(metric, record.get(metric)) > gain(metric, other.get(metric))
