"""Without samples the verdict says what is proven and that nothing was scored; no word of it clears anybody."""

from __future__ import annotations

import pytest

from leakgauge.types import Finding, Proven
from leakgauge.verdict.proven import all_proven, headline_of, in_words, unscored_verdict
from leakgauge.verdict.summary import headline


def found(trial, certified=None, labels=None):
    return Finding("peeling", "none", False, trial, 0, {}, certified=certified, labels_proven=labels)


def test_each_record_is_counted_once_by_the_attack_that_proved_most():
    verdict = unscored_verdict([found(0, 2), found(0, 1, 2), found(1, 1)], trials=2, samples=2)
    assert verdict.proven == Proven(records=3, of_records=4, labels=2, of_labels=4)
    assert verdict.leaks
    assert verdict.sentence == "Not scored: no samples to compare with; proven: 3 of 4 records and 2 of 4 labels."


@pytest.mark.parametrize(
    ("records", "labels", "said"),
    [
        (1, 0, "Leaks: the updates alone prove private records"),
        (0, 1, "Labels are proven, no record is"),
        (0, 0, "Nothing is proven"),
    ],
)
def test_the_headline_never_says_that_there_is_no_leak(records, labels, said):
    assert headline_of(Proven(records, 1, labels, 1)) == said
    verdict = unscored_verdict([found(0, records, labels)], trials=1, samples=1)
    assert headline(verdict) == said
    assert verdict.leaks == bool(records)


def test_one_is_said_as_one():
    assert in_words(Proven(0, 1, 1, 1)) == "0 of 1 record and 1 of 1 label"


def test_all_is_proven_only_if_every_client_is():
    assert all_proven([found(0, 2), found(1, 2)], trials=2, samples=2)
    assert not all_proven([found(0, 2), found(0, 2)], trials=2, samples=2)
    assert not all_proven([], trials=1, samples=1)
