"""The pipe: Scenario -> client step (+ defences) -> what the attacker sees -> attacks -> scores -> AuditReport.

The private batch goes to the client step and to the scores, and nowhere else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from torch import Tensor, nn

from leakgauge import catalog
from leakgauge.applicability import sorted_out
from leakgauge.bounds import contradicted
from leakgauge.cell import Done, run_cell
from leakgauge.evidence import controlled, exposures, upper_sides
from leakgauge.flags import FLAGS
from leakgauge.gate import Gate
from leakgauge.ledger import ledger, rerun_cell
from leakgauge.own_update import IN_PYTHON, recorded_stage, stage_of
from leakgauge.pacing import Pace, pace_of, searches
from leakgauge.plan import Cell, configurations, parse_chain, plan
from leakgauge.sanity import refuse_wrong
from leakgauge.settling import settled_by
from leakgauge.stage import Stage, environment, set_stage
from leakgauge.store import Store, key_of
from leakgauge.suites import SUITES
from leakgauge.triage import first_observation, triage_of
from leakgauge.types import AuditReport, Finding, Pictures, Scenario, Skipped
from leakgauge.types.triage import EXPOSED, WRONG
from leakgauge.verdict import conclude, summarise

Watch = Callable[[int, int, str, float], None]  # cell number, cells in all, what runs now, share of it done


def run_audit(
    scenario: Scenario,
    *,
    out: Path | None = None,
    undefended: bool = True,
    data_root: Path | None = None,
    device: str = "auto",
    fresh: bool = False,
    triaged: bool = False,
    stage: Stage | None = None,
    watch: Watch = lambda *_: None,
    notice: Callable[[str], None] = lambda _: None,
) -> tuple[AuditReport, Pictures]:
    """Run every cell of `scenario` and say what was recovered.

    With `out`, each finished cell is kept there and reused by the same scenario unless `fresh`. `undefended` adds
    the bare update for comparison. `notice` is told what is known against an attack before it starts, and with
    `triaged` what the first victim's bare update allows. `stage` is what was loaded already, if it was. A keyboard
    interrupt ends the run early: the report holds the finished cells and says so.
    """
    gate = Gate.parse(scenario.gate) if scenario.gate is not None else None
    cells = plan(scenario, undefended and scenario.update is None)  # a saved update is what it is
    if stage is None:
        saved = scenario.update is not None
        stage = recorded_stage(scenario, device) if saved else set_stage(scenario, data_root, device)
        scenario = stage.scenario
    clues = triage_of(stage) if triaged else ()
    if scenario.update is not None:
        refuse_wrong(clues)
    for clue in clues:
        if clue.severity in (WRONG, EXPOSED):
            notice(f"{clue.what}: {clue.value}: {clue.meaning}")
    store = Store(out) if out else None
    if store:
        store.save_truth(stage.batch.inputs)
    findings: list[Finding] = []
    recovered: dict[str, Tensor] = {}
    keys: dict[str, str] = {}
    specs: dict[str, Cell] = {}
    cells, skipped = sorted_out(stage, cells) if in_suite(scenario) else (cells, [])
    pace = _pace(stage) if in_suite(scenario) else None
    interrupted = False
    try:
        for number, cell in enumerate(cells):
            if pace is not None and (settling := _settling(stage, cell, findings, recovered)):
                why = f"settled by {' and '.join(settling)}: every record was recovered"
                skipped.append(Skipped(cell.label, cell.defense, cell.adaptive, why))
                continue
            key = _key(stage, cell)
            watch(number, len(cells), cell.name, 0.0)
            done = store.load_cell(key) if store and not fresh else None
            left = _left(stage, done)
            specs[cell.name] = cell if pace is None else pace.paced(cell, cells[number + 1 :])
            try:
                if left:
                    now = partial(watch, number, len(cells), cell.name)
                    more = run_cell(stage, specs[cell.name], findings, now, left, notice)
                    done = _merged(done, more)
                    whole = [f for f in done[0] if not f.error]  # what could not run is tried again next time
                    if store and whole:
                        store.save_cell(key, whole, done[1])
            finally:  # an interrupt before another trial was finished leaves what was there
                if done is not None:
                    findings += done[0]
                    keys[cell.name] = key
                    if done[1] is not None:
                        recovered[cell.name] = done[1]
            if done is not None and len(done[0]) < scenario.trials:  # an interrupt came while the cell ran
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        interrupted = True
    if store:
        store.save_cells_of_report(keys)
    report = _report(stage, findings, recovered, gate, interrupted)
    report = dataclasses.replace(report, triage=clues, skipped=tuple(skipped))
    if scenario.ledger and not interrupted:
        report = _with_ledger(
            stage, report, list(specs.values()), store, fresh, partial(watch, len(cells) - 1, len(cells))
        )
    return report, Pictures(stage.batch.inputs.cpu(), recovered)


def audit_update(
    model: nn.Module,
    update: Mapping[str, Tensor],
    inputs: Tensor,
    labels: Tensor,
    scenario: Scenario | None = None,
    *,
    out: Path | None = None,
    device: str = "auto",
) -> tuple[AuditReport, Pictures]:
    """What one client's update gives away of its batch (N, *shape), (N,); for a training loop.

    `update` maps parameter names to gradients, or to weight differences if the scenario's `local` says fedavg; `model`
    is as it was before. Of the scenario only the suite or attacks, `local`, the one declared defence, threat model,
    gate, ledger and seed count.
    """
    given = dataclasses.replace(scenario or Scenario(), model=IN_PYTHON, data=IN_PYTHON)
    stage = stage_of(model, update, inputs, labels, given, device)
    refuse_wrong(triage_of(stage))
    return run_audit(stage.scenario, out=out, undefended=not given.defenses, stage=stage, triaged=True)


def in_suite(scenario: Scenario) -> bool:
    """Does the audit choose its own attacks? Then it may also leave some out."""
    return not scenario.attacks


def _pace(stage: Stage) -> Pace:
    seen = first_observation(stage, range(stage.scenario.trials))
    return pace_of(SUITES[stage.scenario.suite].seconds, seen, stage.scenario.seeds)


def _settling(
    stage: Stage, cell: Cell, findings: Sequence[Finding], recovered: Mapping[str, Tensor]
) -> tuple[str, ...]:
    """What settled the cell's configuration before it came; nothing settles a floor."""
    return () if cell.attack.baseline else settled_by(stage, findings, recovered, cell.defense)


def _key(stage: Stage, cell: Cell) -> str:
    """What a finished cell is kept under. How far a search of a suite gets depends on the clock: its suite names it."""
    paced = in_suite(stage.scenario) and searches(cell.attack)
    timed = {"suite": stage.scenario.suite} if paced else {}
    return key_of(stage=stage.key, attack=cell.attack.spec, defense=cell.defense, adaptive=cell.adaptive, **timed)


def _with_ledger(
    stage: Stage, report: AuditReport, cells: Sequence[Cell], store: Store | None, fresh: bool,
    watch: Callable[[str, float], None],
) -> AuditReport:  # fmt: skip
    """The report with what each fact was worth; an interrupt leaves the ledger out."""
    floors = [f for f in report.findings if f.attack in _floors()]

    def rerun(change: str, changed: Stage, cell: Cell) -> Sequence[Finding]:
        watch(f"{cell.name}, {change}", 0.0)
        key = key_of(cell=_key(stage, cell), change=change)
        kept = store.load_cell(key) if store and not fresh else None
        if kept is not None:
            return kept[0]
        found = rerun_cell(changed, cell, floors)
        if store and not any(f.error for f in found):
            store.save_cell(key, found, None)
        return found

    try:
        return dataclasses.replace(report, ledger=ledger(stage, cells, report.findings, report.verdict, rerun))
    except KeyboardInterrupt:
        return dataclasses.replace(report, interrupted=True)


def _left(stage: Stage, kept: Done | None) -> list[int]:
    """The trials of a cell that are still to be run."""
    there = {f.trial for f in kept[0]} if kept else set()
    return [t for t in range(stage.scenario.trials) if t not in there]


def _merged(kept: Done | None, more: Done) -> Done:
    """Two parts of one cell as one, in the order of the trials."""
    if kept is None or not kept[0]:
        return more
    findings = sorted([*kept[0], *more[0]], key=lambda f: f.trial)
    if kept[1] is None or more[1] is None:
        return findings, more[1] if kept[1] is None else kept[1]
    pictures = kept[1].to(more[1]).clone()
    ran = [f.trial for f in more[0]]
    pictures[ran] = more[1][ran]
    return findings, pictures


def _report(
    stage: Stage, findings: Sequence[Finding], recovered: Mapping[str, Tensor], gate: Gate | None, interrupted: bool
) -> AuditReport:
    rows, findings = controlled(stage, summarise(findings, stage.data), findings, recovered)
    attacked = {f.defense for f in findings if f.attack not in _floors()}  # own attacks are in no catalogue
    run = [c for c in configurations(stage.scenario) if c in attacked]
    guarantees = {c: next((g for d in reversed(parse_chain(c)) if (g := d.guarantee())), None) for c in run}
    verdict = conclude(rows, findings, run, guarantees, gate, stage.data, upper_sides(stage, run))
    raised = {flag for row in rows for flag in row.flags}
    if any(contradicted(c["lower"], c["upper"]) for c in verdict.configurations):
        raised.add("bound-exceeded")
    told = tuple(sorted(f.value for f in stage.threat_model.facts))
    return AuditReport(
        scenario=stage.scenario,
        data=stage.data,
        findings=tuple(findings),
        summary=rows,
        verdict=verdict,
        flags=tuple(FLAGS[flag] for flag in sorted(raised)),
        told=told,
        environment=environment(stage.batch.inputs.device) | {"model state": stage.state, "engine": stage.engine},
        interrupted=interrupted,
        exposure=() if interrupted else exposures(stage, rows, findings),
    )


def _floors() -> set[str]:
    return {name for name, attack in catalog.find("attacks").items() if attack.baseline}
