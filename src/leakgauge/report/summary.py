"""The result on one screen, in the Markdown that a pull request or a job summary shows."""

from __future__ import annotations

from leakgauge.report.cells import flags
from leakgauge.report.markdown import one_line, table_line
from leakgauge.report.numbers import NOTHING, percent
from leakgauge.report.rows import most_exposed
from leakgauge.report.subject import counted, title_of
from leakgauge.types import AuditReport, ConfigurationVerdict
from leakgauge.verdict.summary import headline, state_of

_HEADS = [
    "Configuration",
    "Result",
    "Recovered by any attack",
    "Shown at least",
    "Guaranteed at most",
    "Strongest attack",
]


def to_summary(report: AuditReport) -> str:
    verdict = report.verdict
    title = f"### Leakage audit: {one_line(title_of(report))}"
    lines = [title, "", f"**{headline(verdict)}.** {one_line(verdict.sentence)}"]
    if report.interrupted:
        lines += ["", "**Interrupted: finished cells only.**"]
    if verdict.gate is not None:
        state = "passed" if verdict.gate.passed else "failed"
        lines += ["", f"**Gate {state}.** {one_line(verdict.gate.sentence)}"]
    if verdict.configurations:
        lines += ["", table_line(_HEADS), table_line(["---"] * len(_HEADS))]
        lines += [table_line([one_line(v) for v in _row(c)]) for c in verdict.configurations]
    if exposed := most_exposed(report):
        lines += ["", one_line(exposed)]
    if doubts := flags(report):
        raised = ", ".join(one_line(f.id) for f in doubts)
        lines += ["", f"Flags: {raised}. They are explained in the report."]
    s, where = report.scenario, report.environment
    trials = f"{counted('update', s.trials)} of {counted('record', s.batch_size)}, seed {s.seed}"
    tool = one_line(f"leakgauge {where.get('leakgauge', '')} on {where.get('device', '')}")
    lines += ["", f"<sub>{trials}; {tool}</sub>"]
    return "\n".join(lines) + "\n"


def _row(configuration: ConfigurationVerdict) -> list[str]:
    lower, upper = configuration.lower, configuration.upper
    style = " (knows the defense)" if configuration.adaptive else ""
    unsure = f", {configuration.undecided} undecided" if configuration.undecided else ""
    return [
        configuration.defense,
        state_of(configuration),
        f"{lower.recovered} of {lower.records}{unsure}" if lower.records else NOTHING,
        percent(lower.at_least) if lower.records else NOTHING,
        "no guarantee" if upper.gamma is None else percent(upper.gamma),
        f"{configuration.attack}{style}" if configuration.attack else NOTHING,
    ]
