"""Attacks of a suite that were not run, in one line each: silence must not be taken for a result."""

from __future__ import annotations

import re
from collections.abc import Sequence

from leakgauge.types import NOT_APPLICABLE, UNDEFENDED, AuditReport
from leakgauge.verdict.roles import is_floor

_FORBIDDEN = re.compile(r"may (not )?change")  # how the reason of a server begins that the threat model does not allow


def skipped_lines(report: AuditReport) -> list[str]:
    """Grouped by reason, in the order they came up."""
    groups: dict[tuple[str, str], list[str]] = {}
    for s in report.skipped:
        name = f"{s.attack} (adaptive)" if s.adaptive else s.attack
        groups.setdefault((s.defense, s.why), []).append(name)
    return [
        f"not run{'' if defense == 'all' else f' against {defense}'}: {', '.join(dict.fromkeys(names))}: {why}"
        for (defense, why), names in groups.items()
    ]


def plain_lines(report: AuditReport) -> list[str]:
    """The same for those who did not build the system: what kept the attacks back, without advice."""
    kinds: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    by_kind: dict[tuple[str, str], list[str]] = {}
    for s in report.skipped:
        if not is_floor(s.attack):
            by_kind.setdefault((_kind(s.why), s.attack), []).append(s.defense)
    for (kind, attack), places in by_kind.items():
        kinds.setdefault((kind, tuple(dict.fromkeys(places))), []).append(attack)
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
