"""The records that an update exposes most, by the estimate that needs no attack."""

from __future__ import annotations

from dataclasses import dataclass

from leakgauge.types import AuditReport, Exposure
from leakgauge.verdict.exposure import worst_first

_SHOWN = 6
NOTE = (
    "Where to look first: the cosine of each record's own gradient with what is shared, which the client can compute "
    "before any attack. It is an estimate, not a bound, and no result was chosen by it."
)


@dataclass(frozen=True)
class Group:
    defense: str
    records: tuple[tuple[str, str], ...]  # place and value, the most exposed first
    agreement: str


def exposed(report: AuditReport) -> list[Group]:
    """Per configuration; those where all records are equally exposed (one record, nothing hides it) are left out."""
    return [_group(report, e) for e in report.exposure if len({round(v, 3) for row in e.alignment for v in row}) > 1]


def _group(report: AuditReport, found: Exposure) -> Group:
    several = report.scenario.batch_size > 1
    records = tuple(
        (f"trial {trial}" + (f", record {record}" if several else ""), f"{value:.2f}".replace("-", "−"))
        for trial, record, value in worst_first(found)[:_SHOWN]
    )
    return Group(found.defense, records, _agreement(found.agreement))


def _agreement(value: float | None) -> str:
    if value is None:
        return "Too few records, or too little difference between them, to compare it with what was recovered."
    said = f"{value:+.2f}".replace("-", "−")
    return f"Rank correlation with what the strongest attack recovered: {said}."
