"""The report as Markdown: in full, on one screen for a pull request, and of all rounds of a recording."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from leakgauge.reading.visible import visible, visible_lines
from leakgauge.report.blind_page import HEADS, client_rows, errors
from leakgauge.report.cells import flags
from leakgauge.report.html import TEMPLATES, words
from leakgauge.report.numbers import NOTHING, counted, percent
from leakgauge.report.rows import most_exposed
from leakgauge.report.scatter import quality
from leakgauge.report.subject import title_of
from leakgauge.types import AuditReport, ConfigurationVerdict
from leakgauge.verdict.summary import headline, state_of


def to_markdown(report: AuditReport) -> str:
    page = words(report)
    heads = [Markup(c.heading + (f" ({c.note})" if c.note else "")) for c in page["columns"]]  # our own words
    page |= {"client_heads": HEADS, "clients": client_rows(report), "errors": errors(report)}
    return _rendered("report.md.j2", page | {"heads": heads, "quality": quality(report), "bold": Markup("**")})


def to_summary(report: AuditReport) -> str:
    """The result on one screen, in the Markdown that a pull request or a job summary shows."""
    page = {"report": report, "verdict": report.verdict, "word": headline(report.verdict), "title": title_of(report)}
    rows = [_configuration(c) for c in report.verdict.configurations]
    page |= {"configurations": rows, "flags": flags(report), "most_exposed": most_exposed(report)}
    return _rendered("summary.md.j2", page | {"counted": counted})


def _configuration(c: ConfigurationVerdict) -> list[str]:
    lower, upper = c.lower, c.upper
    unsure = f", {c.undecided} undecided" if c.undecided else ""
    return [
        c.defense,
        state_of(c),
        f"{lower.recovered} of {lower.records}{unsure}" if lower.records else NOTHING,
        percent(lower.at_least) if lower.records else NOTHING,
        "no guarantee" if upper.gamma is None else percent(upper.gamma),
        f"{c.attack}{' (knows the defense)' if c.adaptive else ''}" if c.attack else NOTHING,
    ]


@dataclass(frozen=True)
class AuditedRound:
    """Clients of one round who did the same, and their audit; none where no update of theirs could be read."""

    name: str  # of the folder that holds the report
    unreadable: tuple[tuple[str, str], ...] = ()  # (update, why)
    report: AuditReport | None = None
    refused: str = ""  # why the round was not audited, where its updates could be read

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        unreadable = [{"name": name, "error": error} for name, error in self.unreadable]
        report = None if self.report is None else self.report.as_dict()
        return {"name": self.name, "unreadable": unreadable, "refused": self.refused, "report": report}


def rounds_page(recorded: str, left_out: int, rounds: Sequence[AuditedRound]) -> str:
    """All audited rounds of a recording on one page: what each came to, and where its report is."""
    page = {"recorded": recorded, "left_out": left_out, "rounds": rounds, "headline": headline, "quote": quote}
    return _rendered("rounds.md.j2", page)


def _rendered(template: str, page: Mapping[str, Any]) -> str:
    """A page, in which no value is read as Markdown or HTML; of blank lines that follow each other one stays."""
    text = _TEMPLATES.get_template(template).render(page, row=table_line)
    return visible_lines(re.sub(r"\n{3,}", "\n\n", text).strip("\n") + "\n")


def table_line(values: Sequence[object]) -> Markup:
    """One row of a table."""
    return Markup("| " + " | ".join(map(_escaped, values)) + " |")  # escaped as Markdown


def one_line(text: object) -> str:
    """One line of plain text: nothing in it is read as Markdown, HTML or the end of a table cell."""
    return re.sub(r"([\\`*_\[\]<>|&#~])", r"\\\1", visible(" ".join(str(text).split())))


def _escaped(value: object) -> str:
    return value if isinstance(value, Markup) else one_line(value)


_TEMPLATES = TEMPLATES.overlay(autoescape=False, finalize=_escaped)
