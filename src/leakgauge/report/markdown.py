"""The report as Markdown: in full, on one screen for a pull request, and of all rounds of a recording."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from leakgauge.reading.visible import visible, visible_lines
from leakgauge.report import subject
from leakgauge.report.blind_page import HEADS, client_rows, errors
from leakgauge.report.cells import CONTROL_NOTE, CREDIBLE_NOTE, cells, flags, skipped_lines
from leakgauge.report.json import scenario_toml
from leakgauge.report.numbers import NOTHING, counted, heading, percent
from leakgauge.report.rows import EXPOSED_NOTE, columns, exposed, guarantee_text, most_exposed, table_rows
from leakgauge.report.scatter import quality
from leakgauge.report.tradeoff import tradeoff
from leakgauge.types import AuditReport, ConfigurationVerdict, Verdict, threat_model
from leakgauge.verdict.summary import headline, state_of

_INTERRUPTED = "**Interrupted: finished cells only.**"
_SPENT = (
    "The floors are what an attacker scores without looking at the update. Spent: seconds of all victims together; "
    "steps and gradient evaluations are those of the median victim."
)
_LEDGER = "The strongest attack of each configuration again, same victims and seeds, with one fact changed at a time."
_SECONDS = (
    "in seconds per victim: wall clock on the machine named below, which victims that ran together share equally."
)


def to_markdown(report: AuditReport) -> str:
    doubts = [f"**{one_line(f.id)}**: {one_line(f'{f.reason} What to do: {f.remedy}')}" for f in flags(report)]
    clues = (f"{clue.what} ({clue.severity}): {clue.value}. {clue.meaning}." for clue in report.triage)
    not_run = (
        f"Attacks of the suite {report.scenario.suite} that spent no time here, and why. Nothing is known from them."
    )
    records = (f"{g.defense}: {'; '.join(f'{p}: {v}' for p, v in g.records)}. {g.agreement}" for g in exposed(report))
    parts = [
        _headline(report),
        section("What was attacked", bullets(f"{name}: {value}" for name, value in subject.attacked(report))),
        _known(report),
        section("Flags: reasons not to take a result at face value", "\n".join(f"- {line}" for line in doubts)),
        section("Before any attack", bullets(clues), note=subject.triage_note(report.scenario)),
        _table(report) if report.scored else _clients(report),
        section("What was not run", bullets(skipped_lines(report)), note=not_run),
        section("What each assumption was worth", _ledger(report), note=_LEDGER),
        section("Records by exposure", bullets(records), note=EXPOSED_NOTE),
        _quality_against_seconds(report),
        _tradeoff(report),
        _repeat(report),
    ]
    return visible_lines("\n\n".join(filter(None, parts)) + "\n")


def to_summary(report: AuditReport) -> str:
    """The result on one screen, in the Markdown that a pull request or a job summary shows."""
    verdict, s, where = report.verdict, report.scenario, report.environment
    rows = [_configuration(c) for c in verdict.configurations]
    heads = ("Configuration", "Result", "Recovered by any attack", "Shown at least", "Guaranteed at most")
    raised = ", ".join(one_line(f.id) for f in flags(report))
    tool = one_line(f"leakgauge {where.get('leakgauge', '')} on {where.get('device', '')}")
    trials = f"{counted('update', s.trials)} of {counted('record', s.batch_size)}, seed {s.seed}"
    parts = [
        f"### Leakage audit: {one_line(subject.title_of(report))}",
        _bold(verdict),
        _INTERRUPTED if report.interrupted else "",
        _gate(verdict),
        table([*heads, "Strongest attack"], rows) if rows else "",
        one_line(most_exposed(report)),
        f"Flags: {raised}. They are explained in the report." if raised else "",
        f"<sub>{trials}; {tool}</sub>",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


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


def _bold(verdict: Verdict) -> str:
    return f"**{headline(verdict)}.** {one_line(verdict.sentence)}"


def _gate(verdict: Verdict) -> str:
    gate = verdict.gate
    return f"**Gate {'passed' if gate.passed else 'failed'}.** {one_line(gate.sentence)}" if gate else ""


def _headline(report: AuditReport) -> str:
    verdict, lines = report.verdict, []
    for c in verdict.configurations:
        words = " ".join(filter(None, (c.sentence, guarantee_text(c.guarantee), c.sides)))
        lines.append(f"- {one_line(c.defense)}: **{state_of(c)}**. {one_line(words)}")
    parts = [
        f"# Leakage audit: {one_line(subject.title_of(report))}",
        _INTERRUPTED if report.interrupted else "",
        _bold(verdict),
        _gate(verdict),
        one_line(most_exposed(report)),
        "\n".join(lines),
    ]
    return "\n\n".join(filter(None, parts))


def _known(report: AuditReport) -> str:
    threat = threat_model(report.scenario.threat_model)
    who = f"Threat model {one_line(f'{threat.name}: {threat.summary} ({threat.paper})')}. "
    who += f"What it may change in the model: {threat.may_change}. {subject.labels_sentence(report)}"
    withheld = "; ".join(map(one_line, subject.not_told(report)))
    told = bullets(subject.told(report) or ["nothing"])
    missing = f"\n\nNot told: {withheld}." if withheld else ""
    return section("What the attacker knew", f"Told, besides the model and the update:\n\n{told}{missing}", note=who)


def _table(report: AuditReport) -> str:
    heads = [c.heading + (f" ({c.note})" if c.note else "") for c in columns(report)]
    rows = []
    for row in table_rows(report):
        values = [" · ".join([value, *small]) for value, small in row.values]
        if row.error is not None:
            values = [f"could not run: {row.error}", *[""] * (len(heads) - 1)]
        rows.append([row.defense, f"{row.attack} (floor)" if row.baseline else f"{row.attack}, {row.style}", *values])
    drawn = table(["Defense", "Attack", *heads], rows, marks=["---", "---", *["---:"] * len(heads)])
    note = f"Brackets are 95 % intervals. Failed trials count as not recovered. {CREDIBLE_NOTE} {_SPENT}"
    control = [CONTROL_NOTE] if any(cell.control for cell in cells(report)) else []
    return section("Attacks and defenses", "\n\n".join([drawn, note, *control]))


def _clients(report: AuditReport) -> str:
    """Every attack and client, where there is nothing to score against."""
    parts = [table(HEADS, client_rows(report)), bullets(errors(report))]
    return section("Every attack and client", "\n\n".join(filter(None, parts)))


def _ledger(report: AuditReport) -> str:
    """One line for each assumption that was changed, or could not be."""
    heads = ["Defense", "Strongest attack", "Assumption", "In the audit", "Instead", "What it changed"]
    rows = []
    for a in report.ledger:
        name = f"{a.attack} (knowing the defense)" if a.adaptive else a.attack
        rows.append([a.defense, name, a.fact, a.audit, a.instead or "-", a.sentence])
    return table(heads, rows) if rows else ""


def _quality_against_seconds(report: AuditReport) -> str:
    """What the page draws as quality against seconds, quickest attack first."""
    found = quality(report)
    lines = [
        f"{defense}: " + "; ".join(f"{p.label}: {found.said(p.score, p.seconds)}" for p in points)
        for defense, points in found.groups.items()
    ]
    floors = "; ".join(f"{name}: {found.said(score)}" for name, score in found.floors)
    lines += [f"floors: {floors}"] if floors and lines else []
    name, reduction = heading(found.metric)
    return section("Quality against seconds", bullets(lines), note=f"{name.split(',')[0]}, {reduction}, {_SECONDS}")


def _tradeoff(report: AuditReport) -> str:
    found = tradeoff(report)
    if found is None:
        return ""
    heads = ["Defense", "Strongest attack", "Recovered", found.score_name, "Most exposed"]
    lines = [table_line([*heads, "Accuracy", "Round", "Slower", "Bytes up", "Guarantee"])]
    lines.append(table_line(["---"] * 10))
    for c in found.choices:
        name = f"**{one_line(c.defense)}**" if c.best else one_line(c.defense)
        lines.append(table_line([name, *map(one_line, (c.attack, c.recovered_text, c.score, c.exposed, *c.price))]))
    lines += ["", "Bold: no other configuration leaks less and is as accurate."]
    lines += [f"- {one_line(defense)} is left out: {one_line(why)}." for defense, why in found.left_out]
    note = f"Trained for {one_line(found.setting)}."
    return section("What each defense buys, and what it costs", "\n".join(lines), note=note)


def _repeat(report: AuditReport) -> str:
    how = "Save this as `scenario.toml`, then run `leakgauge audit scenario.toml`."
    if subject.in_python(report.scenario):
        how = "Model, update and batch were given in Python: call `audit_update` with the same ones and this scenario."
    environment = bullets(f"{name}: {value}" for name, value in report.environment.items())
    toml = f"```toml\n{scenario_toml(report.scenario).rstrip()}\n```"
    return section("How to repeat this run", f"{toml}\n\nMeasured with:\n\n{environment}", note=how)


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
    lines = ["# Recorded rounds", "", f"Read from {one_line(recorded)}."]
    if left_out:
        lines.append(f"The recorder left out {left_out:,} later updates: its limits were reached.")
    for one in rounds:
        lines += ["", f"## {one_line(one.name)}", "", *_round(one)]
    return "\n".join([*lines, ""])


def _round(one: AuditedRound) -> list[str]:
    lines = [f"- Not read: {one_line(name)}: {one_line(why)}" for name, why in one.unreadable]
    if (report := one.report) is None:
        return [f"Not audited: {one_line(one.refused)}" if one.refused else "No update could be read.", "", *lines]
    clients = ", ".join(map(one_line, report.clients))
    where = ", ".join(f"{name} {one_line(report.environment.get(name, '?'))}" for name in ("device", "leakgauge"))
    link = f"[Report]({quote(one.name)}/report.html)"
    return [
        _bold(report.verdict),
        "",
        *lines,
        f"- Clients: {clients}",
        f"- {link}; seed {report.scenario.seed}, {where}",
    ]


def section(title: str, text: str, note: str = "") -> str:
    """Nothing without `text`; the note stands above it."""
    return "\n\n".join(filter(None, (f"## {title}", note, text))) if text else ""


def bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {one_line(line)}" for line in lines)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], marks: Sequence[str] = ()) -> str:
    lines = [table_line(heads), table_line(marks or ["---"] * len(heads))]
    return "\n".join([*lines, *(table_line([one_line(value) for value in row]) for row in rows)])


def table_line(values: Sequence[str]) -> str:
    return "| " + " | ".join(values) + " |"


def one_line(text: object) -> str:
    """One line of plain text: nothing in it is read as Markdown, HTML or the end of a table cell."""
    return re.sub(r"([\\`*_\[\]<>|&#~])", r"\\\1", visible(" ".join(str(text).split())))
