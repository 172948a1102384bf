"""Run an audit for a command: who does the work, folder, progress, report files, exit code."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from leakgauge.audit.federated_training import with_costs
from leakgauge.audit.run import run_audit
from leakgauge.cli.console import say, show, show_json, show_table, watching
from leakgauge.cli.options import Places, Run
from leakgauge.cli.triage import show_clues
from leakgauge.errors import BadInput, LeakgaugeError
from leakgauge.execution.local import Workers, memory_from_text
from leakgauge.execution.ray import OnRay
from leakgauge.execution.ray_cluster import connected
from leakgauge.execution.scheduler import Transport
from leakgauge.metrics import has_categories
from leakgauge.reading.keys import key_of
from leakgauge.report import to_summary, write
from leakgauge.report.blind_page import HEADS, client_rows
from leakgauge.report.cells import LABELS, flags, skipped_lines
from leakgauge.report.numbers import counted, heading
from leakgauge.report.pictures import write_attacks, write_pairs, write_reconstructions
from leakgauge.report.tradeoff import tradeoff
from leakgauge.types import NOT_APPLICABLE, AuditReport, Federation, Interval, Scenario, Verdict, cell_name
from leakgauge.verdict.roles import decoys_in, is_floor
from leakgauge.verdict.summary import headline

RUNS = Path("leakgauge-runs")
STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
_NAMED = 3  # rows that a flag names
_FILES = {"html": "Report", "officer": "In plain words", "pairs": "Pictures", "reconstructions": "Reconstructions"}


def run(
    scenario: Scenario,
    given: Run,
    *,
    undefended: bool,
    executor: Transport | None = None,
    federation: Federation | None = None,
) -> int:
    """Audit, write the report, print the result; gives the exit code. With a federation the costs are measured too.

    Without `undefended` it is a single attack: one that cannot run at all is an error, and leaves no folder behind.
    """
    folder = given.out or RUNS / key_of(scenario=scenario.as_dict(), undefended=undefended)[:10]
    more: dict[str, Any] = {"executor": executor, "federation": federation}
    report, files = audited(scenario, given, folder, undefended=undefended, triaged=undefended, **more)
    if undefended:
        append_step_summary(to_summary(report))
    if given.as_json:
        show_json(report.as_dict() if undefended else without_floors(report).as_dict())
        say(f"report: {files['html']}")
    else:
        show_report(report, files)
    if report.interrupted:
        say("leakgauge: interrupted; the report holds what was finished: give the same command again to resume")
    return code_of(report)


def code_of(report: AuditReport) -> int:
    """The exit code that a report stands for."""
    if report.interrupted:
        return 130
    return 1 if report.verdict.gate and not report.verdict.gate.passed else 0


def audited(
    scenario: Scenario,
    given: Run,
    folder: Path,
    *,
    undefended: bool,
    triaged: bool,
    federation: Federation | None = None,
    **loaded: Any,
) -> tuple[AuditReport, dict[str, Path]]:
    """The audit with its report and pictures written into `folder`; gives back what was written: format -> file."""
    if folder.exists() and not folder.is_dir():
        raise BadInput("--out", allowed="a folder", got=f"{str(folder)!r}, a file", do="name another one")
    was_there = folder.exists()
    place: dict[str, Any] = {"device": given.device, "data_root": given.data_root}
    with watching() as watch:
        report, pictures = run_audit(
            scenario,
            out=folder,
            undefended=undefended,
            triaged=triaged,
            fresh=given.fresh,
            keep_private=given.keep_private,
            watch=watch,
            notice=lambda line: say(f"note: {line}"),
            **place,
            **loaded,
        )
    if federation is not None and not report.interrupted:
        with watching() as watch:

            def step(done: int, of: int, name: str) -> None:
                watch(done - 1, of, f"training {name}".rstrip(), 1.0)

            report = with_costs(report, federation, watch=step, **place)
    single = not (undefended or triaged)
    if single and (refused := _refusal(report)):
        if not was_there:
            shutil.rmtree(folder)
        raise LeakgaugeError(refused)
    files = write(report, pictures, folder)
    if sheet := write_pairs(report, pictures, folder):
        files["pairs"] = sheet
    write_attacks(report, pictures, folder)
    if not report.scored:
        write_reconstructions(report, pictures, folder, single=single)
        files["reconstructions"] = folder
    return report, files


def show_report(report: AuditReport, files: Mapping[str, Path]) -> None:
    """The result for a person at a terminal."""
    if report.triage:
        show_clues(report.triage)
    if report.scored:
        show_summary(report)
    else:
        show_table(HEADS, client_rows(report))
    show_costs(report)
    for line in skipped_lines(report):
        show(line)
    show_ledger(report)
    for line in dict.fromkeys(f"{r.attack}: {r.error}" for r in report.summary if r.error):
        show(line)
    notes = Counter(f"{f.attack} against {f.defense}: {f.note}" for f in report.findings if f.note)
    for note, times in notes.items():
        show(f"{note} ({counted('update', times)})")
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
    for form, name in _FILES.items():
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
    named = [m for m in report.scenario.metrics if m not in ("psnr", "ssim", "mse", "cells")]
    second, other = "ssim", "SSIM [95 %]"
    if has_categories(report.data):
        first, digits, title, second, other = "cells", 2, "values right [95 %]", "mse", title
    scores = {first: digits, second: 5 if second == "mse" else 2} | {m: 1 if m.startswith("psnr") else 2 for m in named}
    columns = {f"{m}_mean_per_image": places for m, places in scores.items()} | {LABELS: 2}
    rows, decoys = [], decoys_in(report.findings)
    for row in report.summary:
        decoy, found = row.attack in decoys, row.success_rate
        style = "control" if decoy else "adaptive" if row.adaptive else "plain"
        if row.error:
            rows.append([row.attack, row.defense, style, *["-"] * (len(columns) + 1), "did not run"])
            continue
        values = [interval(row.metrics.get(name), places) for name, places in columns.items()]
        recovered = f"{found.recovered}/{found.records}" if found.records else "-"
        recovered += f" ({row.undecided} undecided)" if row.undecided and not decoy else ""
        style = "floor" if is_floor(row.attack) else style
        rows.append([row.attack, row.defense, style, *values, recovered, f"{row.seconds:.0f} s"])
    more = [f"{heading(m)[0]} [95 %]" for m in named]
    heads = ["attack", "defense", "attacker", title, other, *more, "labels [95 %]", "recovered", "time"]
    show_table(heads, rows)


def show_costs(report: AuditReport) -> None:
    """What each configuration costs, where that was measured."""
    found = tradeoff(report)
    if found is None:
        return
    show("")
    heads = ["  defense", "strongest attack", "recovered", "accuracy", "round", "slower", "bytes up", "guarantee"]
    rows = []
    for c in found.choices:
        mark, recovered = "*" if c.best else " ", f"{c.rate.recovered} of {c.rate.records}"
        rows.append([f"{mark} {c.defense}", c.attack, recovered, *c.price])
    show_table(heads, rows)
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
    """ "0.61 [0.41, 0.81]"; without brackets where it has no bounds."""
    if value is None or value.value is None:
        return "-"
    text = f"{value.value:.{digits}f}"
    both = value.low is not None and value.high is not None
    return f"{text} [{value.low:.{digits}f}, {value.high:.{digits}f}]" if both else text


def without_floors(report: AuditReport) -> AuditReport:
    """Only the attack that was asked for and its control; the floors stay in each row's `floor`."""
    asked = {s.partition(":")[0] for s in report.scenario.attacks} | decoys_in(report.findings)

    def kept(name: str) -> bool:  # "cpl (behind the lock)": an informed attacker's way of using what it knows
        return name in asked or name.partition(" (")[0] in asked

    findings = tuple(f for f in report.findings if kept(f.attack))
    return dataclasses.replace(report, findings=findings, summary=tuple(r for r in report.summary if kept(r.attack)))


def append_step_summary(text: str) -> bool:
    """In a GitHub workflow the result is also shown on the page of the run: `text` is appended to the step's summary.

    Says so if it cannot, and never fails a finished audit.
    """
    named = os.environ.get(STEP_SUMMARY)
    if not named:
        return False
    try:
        with Path(named).open("a", encoding="utf-8", errors="replace") as file:
            file.write(f"{text}\n")
    except OSError as error:
        say(f"leakgauge: {STEP_SUMMARY} could not be written ({error.strerror or error}); see summary.md instead")
        return False
    return True


@contextmanager
def executing(given: Places) -> Iterator[Transport | None]:
    """A transport for as long as this lasts; None for this process."""
    on, workers, memory, share = given.on, given.workers, given.worker_memory, given.gpus_per_task
    if share is not None and on is None:
        raise BadInput("--gpus-per-task", allowed="used with --on ray", got="no --on", do="add --on ray")
    if memory is not None and (on is not None or workers is None):
        got = "--on" if on is not None else "no --workers"
        raise BadInput("--worker-memory", allowed="used with --workers alone", got=got, do="see 'audit --help'")
    if workers is not None and workers < 1:
        raise BadInput("--workers", allowed="a whole number from 1", got=workers, do="for example --workers 4")
    place: dict[str, Any] = {"device": given.device, "data_root": given.data_root}
    if on is not None:
        with connected(_address(on)) as ray:
            yield OnRay(ray, at_most=workers, gpus=1.0 if share is None else share, **place)
    elif workers is not None:
        yield Workers(workers, memory=None if memory is None else memory_from_text(memory), **place)
    else:
        yield None


def _address(on: str) -> str | None:
    """`ray` -> None: one of its own; `ray=auto`, `ray=HOST:PORT` -> what stands behind."""
    name, sep, address = on.partition("=")
    if name != "ray" or (sep and not address):
        raise BadInput("--on", allowed="ray, ray=auto or ray=HOST:PORT", got=repr(on), do="for example --on ray")
    return address or None
