"""Who is who in a table: attacks under test, the same attacks on a decoy, and floors.

A floor never looks at an update: its scores are guesses. A decoy row is an attack on the update of other samples: its
scores were drawn, not read. Neither is a leak, whatever it scores.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from leakgauge import catalog
from leakgauge.types import Fact, Finding, Summary, cell_name


def cell_of(row: Summary | Finding) -> str:
    """The name of the cell that a row or finding belongs to."""
    return cell_name(row.attack, row.defense, row.adaptive)


def is_floor(attack: str) -> bool:
    """By name. An attack of the user's own is in no catalogue, and no floor."""
    return attack in catalog.baselines()


def floor_names() -> tuple[str, ...]:
    """Every floor, the one that knows least first."""
    found = catalog.find("attacks")
    return tuple(sorted(catalog.baselines(), key=lambda name: (Fact.PUBLIC_DATA in found[name].needs, name)))


def is_attack(finding: Finding) -> bool:
    """Is it an attack under test, neither a floor nor one on a decoy?"""
    return not finding.is_decoy and not is_floor(finding.attack)


def attacks_in(findings: Iterable[Finding]) -> list[Finding]:
    return [f for f in findings if is_attack(f)]


def floors_in(findings: Iterable[Finding]) -> list[Finding]:
    return [f for f in findings if is_floor(f.attack)]


def decoys_in(findings: Iterable[Finding]) -> frozenset[str]:
    """The names of the rows that are attacks on a decoy."""
    return frozenset(f.attack for f in findings if f.is_decoy)


def attack_rows(rows: Iterable[Summary], findings: Sequence[Finding]) -> list[Summary]:
    """The rows of attacks under test."""
    decoys = decoys_in(findings)
    return [r for r in rows if r.attack not in decoys and not is_floor(r.attack)]
