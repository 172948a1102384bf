"""When a record counts as recovered, read back from the words in the report ("ssim>=0.6")."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from leakgauge import catalog
from leakgauge.types import CRITERION, AuditReport

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_RULE = re.compile(rf"\s*([\w-]+)\s*[<>]=?\s*({_NUMBER})\s*")


@dataclass(frozen=True)
class Criterion:
    metric: str
    threshold: float

    @property
    def higher_is_better(self) -> bool:
        return bool(catalog.get("metrics", self.metric).higher_is_better)

    def met(self, record: Mapping[str, float | None], threshold: float | None = None) -> bool:
        """A record without the score was not recovered."""
        value = record.get(self.metric)
        limit = self.threshold if threshold is None else threshold
        if value is None:
            return False
        return value >= limit if self.higher_is_better else value <= limit

    def rank(self, record: Mapping[str, float | None]) -> float:
        """Sorts best recovered first; records without the score come last."""
        value = record.get(self.metric)
        if value is None or value != value:
            return float("inf")
        return -value if self.higher_is_better else value


def criterion(report: AuditReport) -> Criterion:
    """The one the summary was counted with; the default for this kind of data if there is no row."""
    for row in report.summary:
        found = _RULE.fullmatch(row.success_rate.criterion)
        if found and found[1] in catalog.find("metrics"):
            return Criterion(found[1], float(found[2]))
    return Criterion(*CRITERION[report.data.kind])
