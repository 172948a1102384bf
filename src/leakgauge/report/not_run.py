"""Attacks of a suite that were not run, in one line each: silence must not be taken for a result."""

from __future__ import annotations

from leakgauge.types import AuditReport


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
