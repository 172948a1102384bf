"""Run an audit for a command: folder, progress, report files, exit code."""

from __future__ import annotations

import dataclasses
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from leakgauge.audit.federated_training import with_costs
from leakgauge.audit.run import run_audit
from leakgauge.cli.console import say, show, show_json, show_table, watching
from leakgauge.cli.sheets import write_comparison, write_pairs
from leakgauge.cli.step_summary import append_step_summary
from leakgauge.cli.triage import show_clues
from leakgauge.errors import BadInput, LeakgaugeError
from leakgauge.reading.keys import key_of
from leakgauge.report import to_summary, write
from leakgauge.report.blind_page import HEADS, client_rows
from leakgauge.report.cells import flags
from leakgauge.report.not_run import skipped_lines
from leakgauge.report.numbers import heading
from leakgauge.report.reconstructions import write_reconstructions
from leakgauge.report.subject import counted
from leakgauge.report.tradeoff import tradeoff
from leakgauge.types import NOT_APPLICABLE, AuditReport, Federation, Interval, Scenario, Verdict, cell_name
from leakgauge.verdict.roles import decoys_in, is_floor
from leakgauge.verdict.summary import headline

RUNS = Path("leakgauge-runs")
_NAMED = 3  # rows that a flag names
_LABELS = "label_accuracy_mean_per_trial"


def run(
    scenario: Scenario,
    *,
    out: Path | None,
    as_json: bool,
    undefended: bool,
    federation: Federation | None = None,
    **how: Any,
) -> int:
    """Audit, write the report, print the result; gives the exit code. With a federation the costs are measured too.

    Without `undefended` it is a single attack: one that cannot run at all is an error, and leaves no folder behind.
    """
    folder = out or RUNS / key_of(scenario=scenario.as_dict(), undefended=undefended)[:10]
    report, files = audited(scenario, folder=folder, undefended=undefended, federation=federation, **how)
    if undefended:
        append_step_summary(to_summary(report))
    if as_json:
        show_json(report.as_dict() if undefended else without_floors(report).as_dict())
        say(f"report: {files['html']}")
    else:
        show_report(report, files)
    if report.interrupted:
        say("leakgauge: interrupted; the report holds what was finished, the same command goes on from there")
    return code_of(report)


def code_of(report: AuditReport) -> int:
    """The exit code that a report stands for."""
    if report.interrupted:
        return 130
    return 1 if report.verdict.gate and not report.verdict.gate.passed else 0


def audited(
    scenario: Scenario,
    *,
    folder: Path,
    undefended: bool,
    triaged: bool | None = None,
    federation: Federation | None = None,
    **how: Any,
) -> tuple[AuditReport, dict[str, Path]]:
    """The audit with its report and pictures written into `folder`; gives back what was written: format -> file."""
    if folder.exists() and not folder.is_dir():
        raise BadInput("--out", allowed="a folder", got=f"{str(folder)!r}, a file", do="name another one")
    was_there = folder.exists()
    with watching() as watch:
        report, pictures = run_audit(
            scenario,
            out=folder,
            undefended=undefended,
            triaged=undefended if triaged is None else triaged,  # an audit looks before it attacks
            watch=watch,
            notice=lambda line: say(f"before it starts: {line}"),
            **how,
        )
    if federation is not None and not report.interrupted:
        report = _with_costs(report, federation, how)
    refused = _refusal(report) if not (undefended or triaged) else None
    if refused:
        if not was_there:
            shutil.rmtree(folder)
        raise LeakgaugeError(refused)
    files = write(report, pictures, folder)
    if sheet := write_pairs(report, pictures, folder):
        files["pairs"] = sheet
    write_comparison(report, pictures, folder)
    if not report.scored:
        write_reconstructions(report, pictures, folder, single=not (undefended or triaged))
        files["reconstructions"] = folder
    return report, files


def _with_costs(report: AuditReport, federation: Federation, how: Mapping[str, Any]) -> AuditReport:
    with watching() as watch:
        return with_costs(
            report,
            federation,
            device=how.get("device", "auto"),
            data_root=how.get("data_root"),
            watch=lambda done, of, said: watch(done - 1, of, f"training {said}".rstrip(), 1.0),
        )


def show_report(report: AuditReport, files: Mapping[str, Path]) -> None:
    """The result for a person at a terminal."""
    if report.triage:
        show_clues(report.triage)
    if report.scored:
        show_summary(report)
    else:
        show_table(list(HEADS), client_rows(report))
    show_costs(report)
    for line in skipped_lines(report):
        show(line)
    show_ledger(report)
    for reason in dict.fromkeys(f"{r.attack}: {r.error}" for r in report.summary if r.error):
        show(reason)
    for line in notes_of(report):
        show(line)
    show("")
    for entry in report.verdict.configurations:
        show(entry.sentence)
        show(f"  {entry.sides}")
    for flag in flags(report):
        show(f"flag {flag.id}{raised_by(report, flag.id)}: {flag.reason}; {flag.remedy}")
    if report.verdict.gate:
        show(report.verdict.gate.sentence)
    show("")
    if report.verdict.configurations or not report.scored:
        show(f"Verdict: {_loud(report.verdict)}. {report.verdict.sentence}")
    named = {"html": "Report", "officer": "In plain words", "pairs": "Pictures", "reconstructions": "Reconstructions"}
    for form, name in named.items():
        if form in files:
            show(f"{name}: {files[form]}")


def _loud(verdict: Verdict) -> str:
    """The headline in capitals; the configurations that it names stay as they are written."""
    words = headline(verdict).upper()
    for configuration in verdict.configurations:
        words = words.replace(configuration.defense.upper(), configuration.defense)
    return words


def raised_by(report: AuditReport, flag: str) -> str:
    """The rows of the table that a flag is about, the first few by name; nothing for one about the whole run."""
    rows = [cell_name(r.attack, r.defense, r.adaptive) for r in report.summary if flag in r.flags]
    more = f" and {len(rows) - _NAMED} more" if len(rows) > _NAMED else ""
    return f" ({'; '.join(rows[:_NAMED])}{more})" if rows else ""


def _refusal(report: AuditReport) -> str | None:
    """Why the one attack that was asked for could not run at all, if so."""
    asked = [row for row in without_floors(report).summary if row.attack not in decoys_in(report.findings)]
    if not asked and not report.interrupted:
        return f"{' '.join(report.scenario.attacks)} gains nothing by knowing the defense: use --plain, or neither flag"
    why = asked[0].error if asked and all(row.error for row in asked) else None
    return why.removeprefix(NOT_APPLICABLE) if why and not report.scored else why


def show_summary(report: AuditReport) -> None:
    """The table attack x defense, floors included."""
    first, digits, title = ("psnr", 1, "PSNR dB [95 %]") if report.data.kind == "image" else ("mse", 5, "MSE [95 %]")
    rows, decoys = [], decoys_in(report.findings)
    more = [m for m in report.scenario.metrics if m not in ("psnr", "ssim", "mse")]  # asked for by name
    for row in report.summary:
        knows = "control" if row.attack in decoys else ("adaptive" if row.adaptive else "plain")
        if row.error:
            rows.append([row.attack, row.defense, knows, *["-"] * (4 + len(more)), "did not run"])
            continue
        metrics, found = row.metrics, row.success_rate
        recovered = f"{found.recovered}/{found.records}" if found.records else "-"
        recovered += f" ({row.undecided} undecided)" if row.undecided and knows != "control" else ""
        knows = "floor" if is_floor(row.attack) else knows
        rows.append(
            [
                row.attack,
                row.defense,
                knows,
                interval(metrics.get(f"{first}_mean_per_image"), digits),
                interval(metrics.get("ssim_mean_per_image"), 2),
                *(interval(metrics.get(f"{m}_mean_per_image"), 1 if m.startswith("psnr") else 2) for m in more),
                interval(metrics.get(_LABELS), 2),
                recovered,
                f"{row.seconds:.0f} s",
            ]
        )
    asked = [f"{heading(m)[0]} [95 %]" for m in more]
    show_table(
        ["attack", "defense", "attacker", title, "SSIM [95 %]", *asked, "labels [95 %]", "recovered", "time"], rows
    )


def show_costs(report: AuditReport) -> None:
    """What each configuration costs, where that was measured."""
    found = tradeoff(report)
    if found is None:
        return
    show("")
    rows = [
        [
            ("* " if c.best else "  ") + c.defense,
            c.attack,
            c.recovered_text,
            f"{c.accuracy:.3f}",
            c.seconds,
            c.slower,
            c.bytes_up,
            c.guarantee,
        ]
        for c in found.choices
    ]
    show_table(
        ["  defense", "strongest attack", "recovered", "accuracy", "round", "slower", "bytes up", "guarantee"], rows
    )
    show(f"trained for {found.setting}; *: no other configuration leaks less and is as accurate")
    for defense, why in found.left_out:
        show(f"{defense}: {why}")


def show_ledger(report: AuditReport) -> None:
    """What each assumption was worth, where that was asked for."""
    if not report.ledger:
        return
    show("")
    rows = [[a.defense, a.attack, a.fact, a.audit, a.instead or "-", a.sentence] for a in report.ledger]
    show_table(["defense", "strongest attack", "assumption", "in the audit", "instead", "what it changed"], rows)
    show("")


def interval(value: Interval | None, digits: int) -> str:
    if value is None or value.value is None:
        return "-"
    text = f"{value.value:.{digits}f}"
    return (
        text if value.low is None or value.high is None else f"{text} [{value.low:.{digits}f}, {value.high:.{digits}f}]"
    )


def without_floors(report: AuditReport) -> AuditReport:
    """Only the attack that was asked for and its control; the floors stay in each row's `floor`."""
    asked = {s.partition(":")[0] for s in report.scenario.attacks} | decoys_in(report.findings)
    return dataclasses.replace(
        report,
        findings=tuple(f for f in report.findings if f.attack in asked or _without_way(f.attack) in asked),
        summary=tuple(r for r in report.summary if r.attack in asked or _without_way(r.attack) in asked),
    )


def _without_way(row: str) -> str:
    """`cpl (behind the lock)`, an attacker who knows the defense and uses that in one way -> `cpl`."""
    return row.partition(" (")[0]


def notes_of(report: AuditReport) -> list[str]:
    """What the attacks say about their own way, equal notes counted."""
    said = Counter((f.attack, f.defense, f.note) for f in report.findings if f.note)
    return [
        f"{attack} against {defense}: {note} ({counted('update', times)})"
        for (attack, defense, note), times in said.items()
    ]
