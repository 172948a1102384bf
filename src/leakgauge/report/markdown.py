"""The report as Markdown, for a pull request or a terminal."""

from __future__ import annotations

import re

from leakgauge.reading.visible import visible, visible_lines
from leakgauge.report import assumptions
from leakgauge.report.blind_page import HEADS, client_rows, errors
from leakgauge.report.cells import CONTROL_NOTE, CREDIBLE_NOTE, cells, flags
from leakgauge.report.exposed import NOTE as EXPOSED_NOTE
from leakgauge.report.exposed import exposed
from leakgauge.report.not_run import skipped_lines
from leakgauge.report.numbers import heading
from leakgauge.report.quality import quality
from leakgauge.report.rows import columns, guarantee_text, most_exposed, table_rows
from leakgauge.report.scatter import said
from leakgauge.report.subject import in_python, title_of, triage_note
from leakgauge.report.toml import scenario_toml
from leakgauge.report.tradeoff import tradeoff
from leakgauge.types import AuditReport, threat_model
from leakgauge.verdict.summary import headline, state_of


def to_markdown(report: AuditReport) -> str:
    parts = [
        _headline(report),
        _attacked(report),
        _known(report),
        _flags(report),
        _triage(report),
        _table(report),
        _not_run(report),
        _ledger(report),
        _exposed(report),
        _quality_against_seconds(report),
        _tradeoff(report),
        _repeat(report),
    ]
    return visible_lines("\n\n".join(filter(None, parts)) + "\n")


def _headline(report: AuditReport) -> str:
    verdict = report.verdict
    lines = [f"# Leakage audit: {one_line(title_of(report))}", ""]
    if report.interrupted:
        lines += ["**Interrupted: finished cells only.**", ""]
    lines += [f"**{headline(verdict)}.** {one_line(verdict.sentence)}"]
    if verdict.gate is not None:
        passed = "passed" if verdict.gate.passed else "failed"
        lines += ["", f"**Gate {passed}.** {one_line(verdict.gate.sentence)}"]
    if exposed := most_exposed(report):
        lines += ["", one_line(exposed)]
    if verdict.configurations:
        lines.append("")
    for c in verdict.configurations:
        words = " ".join(filter(None, (c.sentence, guarantee_text(c.guarantee), c.sides)))
        lines.append(f"- {one_line(c.defense)}: **{state_of(c)}**. {one_line(words)}")
    return "\n".join(lines)


def _attacked(report: AuditReport) -> str:
    lines = [f"- {name}: {one_line(value)}" for name, value in assumptions.attacked(report)]
    return "\n".join(["## What was attacked", "", *lines])


def _known(report: AuditReport) -> str:
    threat = threat_model(report.scenario.threat_model)
    lines = [
        "## What the attacker knew",
        "",
        f"Threat model {one_line(threat.name)}: {one_line(threat.summary)} ({one_line(threat.paper)}). "
        f"What it may change in the model: {threat.may_change}. {assumptions.labels_sentence(report)}",
        "",
        "Told, besides the model and the update:",
        "",
        *([f"- {one_line(fact)}" for fact in assumptions.told(report)] or ["- nothing"]),
    ]
    withheld = assumptions.not_told(report)
    if withheld:
        lines += ["", "Not told: " + "; ".join(map(one_line, withheld)) + "."]
    return "\n".join(lines)


def _flags(report: AuditReport) -> str:
    if not (doubts := flags(report)):
        return ""
    lines = [f"- **{one_line(f.id)}**: {one_line(f.reason)} What to do: {one_line(f.remedy)}" for f in doubts]
    return "\n".join(["## Flags: reasons not to take a result at face value", "", *lines])


def _triage(report: AuditReport) -> str:
    if not report.triage:
        return ""
    lines = [
        f"- {one_line(clue.what)} ({clue.severity}): {one_line(clue.value)}. {one_line(clue.meaning)}."
        for clue in report.triage
    ]
    return "\n".join(["## Before any attack", "", triage_note(report.scenario), "", *lines])


def _table(report: AuditReport) -> str:
    if not report.scored:
        return _clients(report)
    heads = [c.heading + (f" ({c.note})" if c.note else "") for c in columns(report)]
    lines = ["## Attacks and defenses", "", table_line(["Defense", "Attack", *heads])]
    lines.append(table_line(["---", "---", *["---:"] * len(heads)]))
    for row in table_rows(report):
        name = f"{row.attack} (floor)" if row.baseline else f"{row.attack}, {row.style}"
        if row.error is not None:
            values = [f"could not run: {row.error}", *[""] * (len(heads) - 1)]
        else:
            values = [" · ".join([value, *small]) for value, small in row.values]
        lines.append(table_line([one_line(row.defense), one_line(name), *map(one_line, values)]))
    notes = [
        f"Brackets are 95 % intervals. Failed trials count as not recovered. {CREDIBLE_NOTE} The floors are what an "
        "attacker scores without looking at the update. Spent: seconds of all victims together; steps and gradient "
        "evaluations are those of the median victim."
    ]
    notes += ["", CONTROL_NOTE] if any(cell.control for cell in cells(report)) else []
    return "\n".join([*lines, "", *notes])


def _clients(report: AuditReport) -> str:
    """Every attack and client, where there is nothing to score against."""
    lines = ["## Every attack and client", "", table_line(list(HEADS)), table_line(["---"] * len(HEADS))]
    lines += [table_line([one_line(value) for value in row]) for row in client_rows(report)]
    return "\n".join([*lines, *(["", *(f"- {one_line(e)}" for e in errors(report))] if errors(report) else [])])


def _not_run(report: AuditReport) -> str:
    lines = [f"- {one_line(line)}" for line in skipped_lines(report)]
    note = f"Attacks of the suite {report.scenario.suite} that spent no time here, and why. Nothing is known from them."
    return "\n".join(["## What was not run", "", note, "", *lines]) if lines else ""


def _ledger(report: AuditReport) -> str:
    """One line for each assumption that was changed, or could not be."""
    if not report.ledger:
        return ""
    heads = ["Defense", "Strongest attack", "Assumption", "In the audit", "Instead", "What it changed"]
    lines = [table_line(heads), table_line(["---"] * len(heads))]
    for a in report.ledger:
        name = f"{a.attack} (knowing the defense)" if a.adaptive else a.attack
        lines.append(table_line(list(map(one_line, (a.defense, name, a.fact, a.audit, a.instead or "-", a.sentence)))))
    note = "The strongest attack of each configuration again, same victims and seeds, with one fact changed at a time."
    return "\n".join(["## What each assumption was worth", "", note, "", *lines])


def _exposed(report: AuditReport) -> str:
    groups = exposed(report)
    lines = [
        f"- {one_line(g.defense)}: {one_line('; '.join(f'{p}: {v}' for p, v in g.records))}. {one_line(g.agreement)}"
        for g in groups
    ]
    return "\n".join(["## Records by exposure", "", EXPOSED_NOTE, "", *lines]) if lines else ""


def _quality_against_seconds(report: AuditReport) -> str:
    """What the page draws as quality against seconds, quickest attack first."""
    found = quality(report)
    if not found.groups:
        return ""
    lines = [
        f"- {one_line(group.defense)}: "
        + "; ".join(one_line(f"{p.label}: {said(found, p.score, p.seconds)}") for p in group.points)
        for group in found.groups
    ]
    floors = "; ".join(one_line(f"{name}: {said(found, score)}") for name, score in found.floors)
    lines += [f"- floors: {floors}"] if floors else []
    name, reduction = heading(found.metric)
    note = (
        f"{name.split(',')[0]}, {reduction}, in seconds per victim: wall clock on the machine named below, which "
        "victims that ran together share equally."
    )
    return "\n".join(["## Quality against seconds", "", note, "", *lines])


def _tradeoff(report: AuditReport) -> str:
    found = tradeoff(report)
    if found is None:
        return ""
    heads = [
        "Defense",
        "Strongest attack",
        "Recovered",
        found.score_name,
        "Most exposed",
        "Accuracy",
        "Round",
        "Slower",
        "Bytes up",
        "Guarantee",
    ]
    lines = [
        "## What each defense buys, and what it costs",
        "",
        f"Trained for {one_line(found.setting)}.",
        "",
        table_line(heads),
    ]
    lines.append(table_line(["---"] * len(heads)))
    for c in found.choices:
        name = f"**{one_line(c.defense)}**" if c.best else one_line(c.defense)
        values = [
            c.attack,
            c.recovered_text,
            c.score,
            c.exposed,
            f"{c.accuracy:.3f}",
            c.seconds,
            c.slower,
            c.bytes_up,
            c.guarantee,
        ]
        lines.append(table_line([name, *map(one_line, values)]))
    lines += ["", "Bold: no other configuration leaks less and is as accurate."]
    lines += [f"- {one_line(defense)} is left out: {one_line(why)}." for defense, why in found.left_out]
    return "\n".join(lines)


def _repeat(report: AuditReport) -> str:
    environment = [f"- {one_line(k)}: {one_line(v)}" for k, v in report.environment.items()]
    return "\n".join(
        [
            "## How to repeat this run",
            "",
            "Model, update and batch were given in Python: call `audit_update` with the same ones and this scenario."
            if in_python(report.scenario)
            else "Save this as `scenario.toml`, then run `leakgauge audit scenario.toml`.",
            "",
            "```toml",
            scenario_toml(report.scenario).rstrip(),
            "```",
            "",
            "Measured with:",
            "",
            *environment,
        ]
    )


def table_line(values: list[str]) -> str:
    return "| " + " | ".join(values) + " |"


def one_line(text: object) -> str:
    """One line of plain text: nothing in it is read as Markdown, HTML or the end of a table cell."""
    return re.sub(r"([\\`*_\[\]<>|&#~])", r"\\\1", visible(" ".join(str(text).split())))
