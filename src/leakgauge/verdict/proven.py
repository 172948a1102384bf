"""The verdict where nobody has the samples behind the updates: nothing is scored, and some things are certain.

An attack may prove a record right without the truth, and an update may prove by itself which labels are in it.
"""

from __future__ import annotations

from collections.abc import Sequence

from leakgauge.types import Finding, Proven, Verdict

NOT_SCORED = "Not scored: no samples to compare with"


def unscored_verdict(findings: Sequence[Finding], trials: int, samples: int) -> Verdict:
    """`samples` private records are behind each of the `trials` updates."""
    every = trials * samples
    records, labels = (_most(findings, kind, trials) for kind in ("certified", "labels_proven"))
    proven = Proven(records, every, labels, every)
    return Verdict(
        leaks=records > 0, sentence=f"{NOT_SCORED}; proven: {in_words(proven)}.", configurations=(), proven=proven
    )


def all_proven(findings: Sequence[Finding], trials: int, samples: int) -> bool:
    """Does every record carry a proof of its own?"""
    return _most(findings, "certified", trials) == trials * samples


def in_words(proven: Proven) -> str:
    """ "2 of 2 records and 1 of 2 labels"."""
    records, labels = _counted("record", proven.of_records), _counted("label", proven.of_labels)
    return f"{proven.records} of {records} and {proven.labels} of {labels}"


def headline_of(proven: Proven) -> str:
    """In a few words."""
    if proven.records:
        return "Leaks: the updates alone prove private records"
    return "Labels are proven, no record is" if proven.labels else "Nothing is proven"


def _most(findings: Sequence[Finding], kind: str, trials: int) -> int:
    """How many of all clients together, each by the attack that proved most of it."""
    most = [0] * trials
    for finding in findings:
        most[finding.trial] = max(most[finding.trial], getattr(finding, kind) or 0)
    return sum(most)


def _counted(noun: str, count: int) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
