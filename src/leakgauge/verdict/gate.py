"""A limit that the audited configuration must keep, for continuous integration.

`ssim=0.5` fails if any record under test reaches it. `ssim=0.5,confidence=0.95,share=0.05` asks for more: with that
confidence, no more than that share of all records may reach it. The gate compares the upper end of the interval of the
share of records that any attack, plain or adaptive, brought there, under the worst configuration. So a gate with a
confidence also fails where too few records were attacked to show it, and says how many it takes.

As in the verdict, a record counts only where its score is credible (`leakgauge.verdict.credible`): a flat picture, or
one of nobody, reaches many thresholds and recovers nothing. Where there are too few others to exclude chance, the
gate is not shown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from leakgauge.errors import BadInput
from leakgauge.metrics.criterion import Criterion, gain
from leakgauge.metrics.intervals import at_most, needed
from leakgauge.settings import unknown_name
from leakgauge.types import Finding, GateResult
from leakgauge.verdict.credible import is_credible

_REACHED = {"mse": (0.0, 1e9), "psnr": (0.0, 100.0), "ssim": (-1.0, 1.0)}  # what a record can score
_CONFIDENCE, _SHARE = 0.95, 0.05  # where one is given and the other is not
_EXAMPLE = "for example --gate ssim=0.5 or --gate ssim=0.5,confidence=0.95,share=0.05"


@dataclass(frozen=True)
class Gate:
    """A quality that records must not reach: none of those attacked, or no more than a share of all."""

    metric: str
    threshold: float
    confidence: float | None = None  # None: no attacked record may reach it, and nothing is said of the others
    share: float = _SHARE

    @classmethod
    def parse(cls, text: str) -> Gate:
        first, *more = text.split(",")
        name, _, value = first.partition("=")
        if name not in _REACHED:
            raise unknown_name("gate metric", name, _REACHED)
        threshold = _number(value)
        low, high = _REACHED[name]
        if not low <= threshold <= high:  # nothing ever reaches nan, or an SSIM of 2: such a gate would always hold
            raise BadInput("gate", allowed=f"{name}=NUMBER, from {low:g} to {high:g}", got=repr(first), do=_EXAMPLE)
        given: dict[str, float] = {}
        for part in more:
            key, _, value = part.partition("=")
            if key not in ("confidence", "share"):
                raise unknown_name("gate setting", key, ("confidence", "share"))
            given[key] = _number(value)
            if not 0 < given[key] < 1:
                raise BadInput(f"gate {key}", allowed="between 0 and 1", got=repr(value), do=_EXAMPLE)
        return cls(name, threshold, **({"confidence": _CONFIDENCE} | given if given else {}))

    @property
    def rule(self) -> Criterion:
        """Met by a record that the gate is there to refuse."""
        return Criterion(self.metric, self.threshold)

    def __str__(self) -> str:
        text = f"{self.metric}={self.threshold:g}"
        return text if self.confidence is None else f"{text},confidence={self.confidence:g},share={self.share:g}"


@dataclass(frozen=True)
class _Counted:
    """What the attacks brought to the threshold under one configuration."""

    defense: str
    reached: int  # records that some attack brought to the threshold
    records: int
    undecided: int  # records that reach it, credibly or by chance: there are too few others to decide
    best: str  # where the most exposed record is, and its score


def gate_result(gate: Gate, findings: Sequence[Finding], tested: Sequence[str], unproven: str = "") -> GateResult:
    """Does it hold? `findings` are those of attacks: neither floors nor attacks on a decoy. One sentence says why.

    It does not where the update may have come from other records; `unproven` says why that cannot be known.
    """
    blank = GateResult(gate.metric, gate.threshold, False, "", gate.confidence)
    if gate.confidence is not None:
        blank = replace(blank, share=gate.share)

    def not_shown(why: str, about: _Counted | None = None) -> GateResult:
        """A gate that may hold, which is not enough; `about` is the configuration that leaves it open."""
        result = replace(blank, sentence=f"Gate {gate} not shown: {why}.")
        return result if about is None else replace(result, reached=0, records=about.records, defense=about.defense)

    counted = [found for defense in tested if (found := _count(gate, findings, defense)) is not None]
    if len(counted) < len(tested) or not counted:
        missing = ", ".join(d for d in tested if d not in {c.defense for c in counted}) or "any configuration"
        return not_shown(f"no attack of this run on {missing} could be scored by {gate.metric}")
    confidence = _CONFIDENCE if gate.confidence is None else gate.confidence
    worst = max(counted, key=lambda c: (at_most(c.reached, c.records, confidence), c.reached))
    limit = at_most(worst.reached, worst.records, confidence)
    passed = worst.reached == 0 if gate.confidence is None else limit <= gate.share
    if passed and unproven:
        return not_shown(f"it is not known whether the update came from these records: {unproven}", worst)
    unsure = next((c for c in counted if c.undecided), None)
    if passed and unsure is not None:
        why = (
            f"{_reach(unsure.undecided, unsure.records)}, and there are too few other samples to exclude "
            f"chance; attack more records (--trials). The nearest is {unsure.best}"
        )
        return not_shown(why, unsure)
    sentence = f"Gate {gate} {'held' if passed else 'failed'}: {_why(gate, worst, limit, passed, confidence)}."
    shown = replace(blank, passed=passed, sentence=sentence, defense=worst.defense)
    return replace(shown, reached=worst.reached, records=worst.records, at_most=limit)


def _count(gate: Gate, findings: Sequence[Finding], defense: str) -> _Counted | None:
    """A record counts as reached if any attack did; None if nothing was scored."""
    unsure: set[tuple[int, int]] = set()
    scores: dict[tuple[int, int], tuple[bool, float, float, Finding]] = {}  # is it reached, how far, score, by whom
    for finding in (f for f in findings if f.defense == defense):
        for index, record in enumerate(finding.records):
            value, place = record.get(gate.metric), (finding.trial, index)
            if value is None:
                continue
            credible, near = is_credible(finding, index), gain(gate.metric, value)
            reached = gate.rule.reached(value) and credible is True
            if gate.rule.reached(value) and credible is None:
                unsure.add(place)
            if place not in scores or (reached, near) > scores[place][:2]:
                scores[place] = reached, near, value, finding
    if not scores:
        return None
    (trial, index), (_, _, value, finding) = max(scores.items(), key=lambda item: item[1][:2])
    score = f"{value:.2e}" if gate.metric == "mse" else f"{value:.3f}"
    best = f"{finding.attack} on {defense}, trial {trial}, record {index}: {score}"
    sure = {place for place, found in scores.items() if found[0]}
    return _Counted(defense, len(sure), len(scores), len(unsure - sure), best)


def _why(gate: Gate, worst: _Counted, limit: float, passed: bool, confidence: float) -> str:
    """In one line."""
    counted = _reach(worst.reached, worst.records)
    allows = f"up to {limit:.1%} of all records may ({confidence:.0%} confidence)"
    most = "" if passed else f"; the most exposed is {worst.best}"
    if gate.confidence is None:
        return f"{counted}, so {allows}" if passed else f"{counted}{most}"
    if worst.reached or passed:
        return f"{counted}, so {allows}; {gate.share:.1%} are accepted{most}"
    enough = needed(gate.share, confidence)
    return f"{counted}, but {allows}; to show {gate.share:.1%} attack {enough} records (--trials)"


def _reach(count: int, records: int) -> str:
    return f"{count} of {records} record{'' if records == 1 else 's'} {'reaches' if count == 1 else 'reach'} it"


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
