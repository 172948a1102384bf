"""The report seen as cells of the attack x defense table: a summary row with its findings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from leakgauge.metrics.criterion import Criterion, criterion_of, gain
from leakgauge.report.numbers import percent, rate_bounds
from leakgauge.report.subject import SIMULATED, kind_of_update
from leakgauge.types import NOT_APPLICABLE, UNDEFENDED, AuditReport, Finding, Flag, Summary, cell_name
from leakgauge.verdict.credible import is_credible
from leakgauge.verdict.roles import is_floor

CONTROL_NOTE = (
    "A row marked control is the same attack on a decoy, the update of other samples: what scores there was drawn, not "
    "read, and an attack shows only what it has beyond it."
)
CREDIBLE_NOTE = (
    "A score that meets the criterion counts only where it is credible: better than guesses, or other samples, explain."
)
LABELS = "label_accuracy_mean_per_trial"
_FORBIDDEN = re.compile(r"may (not )?change")  # how the reason of a server begins that the threat model does not allow


@dataclass(frozen=True)
class Cell:
    row: Summary
    findings: tuple[Finding, ...]

    @property
    def name(self) -> str:
        return cell_name(self.row.attack, self.row.defense, self.row.adaptive)

    @property
    def style(self) -> str:
        """Whether the attack knew that the defense was there, or saw a decoy in place of the update."""
        return "control" if self.control else "adaptive" if self.row.adaptive else "plain"

    @property
    def control(self) -> bool:
        """The attack on a decoy: whatever it scores was not read from the update."""
        return any(f.is_decoy for f in self.findings)

    @property
    def baseline(self) -> bool:
        return is_floor(self.row.attack)

    @property
    def claims_records(self) -> bool:
        """False for attacks on labels or properties alone: nothing of theirs can be a recovered record."""
        return self.row.success_rate.records > 0

    @property
    def outcome(self) -> str:
        """What became of the records, in one line; of the labels where no record is claimed."""
        rate, labels = self.row.success_rate, self.row.metrics.get(LABELS)
        counts = f"{rate.recovered} of {rate.records}"
        if self.control:
            return f"a decoy was attacked: {counts} would pass as recovered, and none was read"
        if self.claims_records:
            said = f"{counts} records recovered, {percent(rate.value)} {rate_bounds(rate)}"
            return f"{said}; {self.doubtful}" if self.doubtful else said
        if labels is None or labels.value is None:
            return "no records claimed"
        return f"{percent(labels.value)} of the labels read, no records claimed"

    @property
    def doubtful(self) -> str:
        """Of the records that meet the criterion those that do not count, and why not; empty where all count."""
        row = self.row
        beside = 0 if row.met is None or self.baseline or self.control else row.met - row.success_rate.recovered
        if beside <= 0:
            return ""
        said = f"{beside} {'more ' if row.success_rate.recovered else ''}by score, "
        if not row.undecided:
            return f"{said}not credible"
        return f"{said}undecided" + (f": {row.undecided}" if row.undecided < beside else "")


@dataclass(frozen=True)
class Record:
    """One private sample and how well one attack recovered it."""

    trial: int
    record: int
    scores: dict[str, float | None]
    credible: bool | None = True  # as the verdict counts it; None: undecided

    @property
    def claimed(self) -> bool:
        return any(value is not None for value in self.scores.values())


def cells(report: AuditReport) -> list[Cell]:
    findings: dict[str, list[Finding]] = {}
    for f in report.findings:
        findings.setdefault(cell_name(f.attack, f.defense, f.adaptive), []).append(f)
    return [Cell(r, tuple(findings.get(cell_name(r.attack, r.defense, r.adaptive), ()))) for r in report.summary]


def by_defense(report: AuditReport) -> dict[str, list[Cell]]:
    """Attacks only, grouped by configuration in the verdict's order; baselines stand apart."""
    groups: dict[str, list[Cell]] = {c.defense: [] for c in report.verdict.configurations}
    for cell in cells(report):
        if not cell.baseline:
            groups.setdefault(cell.row.defense, []).append(cell)
    return groups


def flags(report: AuditReport) -> list[Flag]:
    """Those that cast doubt on a result: a control is none, so what controls alone have raised is left out.

    Of a given update there are no more trials to ask for, only more updates to give.
    """
    by_control = {flag for cell in cells(report) if cell.control for flag in cell.row.flags}
    by_others = {flag for cell in cells(report) if not cell.control for flag in cell.row.flags}
    kept = [flag for flag in report.flags if flag.id not in by_control - by_others]
    if kind_of_update(report.scenario) == SIMULATED:
        return kept
    return [replace(flag, remedy=flag.remedy.replace("raise --trials", "audit more updates")) for flag in kept]


def baselines(report: AuditReport) -> list[Cell]:
    return [cell for cell in cells(report) if cell.baseline]


def criterion(report: AuditReport) -> Criterion:
    """The one the summary was counted with; the default for this kind of data if there is no row."""
    for row in report.summary:
        if (found := Criterion.parse(row.success_rate.criterion)) is not None:
            return found
    return criterion_of(report.data)


def ranked(cell: Cell, rule: Criterion) -> list[Record]:
    """Scored records from best recovered to worst; ties keep the order of trials."""
    ran = [f for f in cell.findings if f.error is None]
    records = [Record(f.trial, i, dict(r), is_credible(f, i)) for f in ran for i, r in enumerate(f.records)]
    return sorted(records, key=lambda r: -gain(rule.metric, r.scores.get(rule.metric)))


def skipped_lines(report: AuditReport) -> list[str]:
    """Attacks of a suite that were not run, grouped by reason: silence must not be taken for a result."""
    groups: dict[tuple[str, str], dict[str, None]] = {}
    for s in report.skipped:
        groups.setdefault((s.defense, s.why), {})[f"{s.attack} (adaptive)" if s.adaptive else s.attack] = None
    return [
        f"not run{'' if defense == 'all' else f' against {defense}'}: {', '.join(names)}: {why}"
        for (defense, why), names in groups.items()
    ]


def plain_lines(report: AuditReport) -> list[str]:
    """The same for those who did not build the system: what kept the attacks back, without advice."""
    by_kind: dict[tuple[str, str], dict[str, None]] = {}
    for s in report.skipped:
        if not is_floor(s.attack):
            by_kind.setdefault((_kind(s.why), s.attack), {})[s.defense] = None
    kinds: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (kind, attack), places in by_kind.items():
        kinds.setdefault((kind, tuple(places)), []).append(attack)
    return [f"{', '.join(attacks)}{_places(places)}: {kind}." for (kind, places), attacks in kinds.items()]


def _kind(why: str) -> str:
    if not why.startswith(NOT_APPLICABLE):
        return "not needed, as every record had been rebuilt before"
    if _FORBIDDEN.search(why):
        return "beyond what this attacker may do"
    return "cannot work on this model and these updates"


def _places(defenses: Sequence[str]) -> str:
    named = ["without any defense" if d == UNDEFENDED else f"with {d}" for d in defenses if d != "all"]
    return f" ({', '.join(named)})" if named else ""
