"""All audited rounds of a recording on one page: what each came to, and where its report is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from leakgauge.report.markdown import one_line
from leakgauge.types import AuditReport
from leakgauge.verdict.summary import headline


@dataclass(frozen=True)
class AuditedRound:
    """Clients of one round who did the same, and their audit; none where no update of theirs could be read."""

    name: str  # of the folder that holds the report
    unreadable: tuple[tuple[str, str], ...] = ()  # (update, why)
    report: AuditReport | None = None
    refused: str = ""  # why the round was not audited, where its updates could be read

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "name": self.name,
            "unreadable": [{"name": name, "error": error} for name, error in self.unreadable],
            "refused": self.refused,
            "report": None if self.report is None else self.report.as_dict(),
        }


def rounds_page(recorded: str, left_out: int, rounds: Sequence[AuditedRound]) -> str:
    """Markdown. Names of clients and files come from others: they are no markup."""
    lines = ["# Recorded rounds", "", f"Read from {one_line(recorded)}."]
    if left_out:
        lines.append(f"The recorder left out {left_out:,} later updates: its limits were reached.")
    for one in rounds:
        lines += ["", f"## {one_line(one.name)}", "", *_said(one)]
    return "\n".join([*lines, ""])


def _said(one: AuditedRound) -> list[str]:
    lines = [f"- Not read: {one_line(name)}: {one_line(why)}" for name, why in one.unreadable]
    if (report := one.report) is None:
        return [f"Not audited: {one_line(one.refused)}" if one.refused else "No update could be read.", "", *lines]
    said = [f"**{headline(report.verdict)}.** {one_line(report.verdict.sentence)}"]
    clients = ", ".join(map(one_line, report.clients))
    where = ", ".join(f"{name} {one_line(report.environment.get(name, '?'))}" for name in ("device", "leakgauge"))
    return [
        *said,
        "",
        *lines,
        f"- Clients: {clients}",
        f"- [Report]({quote(one.name)}/report.html); seed {report.scenario.seed}, {where}",
    ]
