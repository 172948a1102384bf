"""The pipe: Scenario -> client step (+ defences) -> what the attacker sees -> attacks -> scores -> AuditReport.

The private batch goes to the client step and to the scores, and nowhere else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from torch import Tensor

from leakgauge import catalog
from leakgauge.bounds import contradicted
from leakgauge.cell import Done, run_cell
from leakgauge.evidence import controlled, exposures, upper_sides
from leakgauge.flags import FLAGS
from leakgauge.gate import Gate
from leakgauge.plan import configurations, parse_chain, plan
from leakgauge.stage import Stage, environment, set_stage
from leakgauge.store import Store, key_of
from leakgauge.triage import triage_of
from leakgauge.types import AuditReport, Finding, Pictures, Scenario
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
    watch: Watch = lambda *_: None,
    notice: Callable[[str], None] = lambda _: None,
) -> tuple[AuditReport, Pictures]:
    """Run every cell of `scenario` and say what was recovered.

    With `out`, each finished cell is kept there and reused by the same scenario unless `fresh`. `undefended` adds
    the bare update for comparison. `notice` is told what is known against an attack before it starts, and with
    `triaged` what the first victim's bare update allows. A keyboard interrupt ends the run early: the report holds the
    finished cells and says so.
    """
    gate = Gate.parse(scenario.gate) if scenario.gate is not None else None
    cells = plan(scenario, undefended)
    stage = set_stage(scenario, data_root, device)
    clues = triage_of(stage) if triaged else ()
    for clue in clues:
        if clue.severity in (WRONG, EXPOSED):
            notice(f"{clue.what}: {clue.value}: {clue.meaning}")
    store = Store(out) if out else None
    if store:
        store.save_truth(stage.batch.inputs)
    findings: list[Finding] = []
    recovered: dict[str, Tensor] = {}
    keys: dict[str, str] = {}
    interrupted = False
    try:
        for number, cell in enumerate(cells):
            key = key_of(stage=stage.key, attack=cell.attack.spec, defense=cell.defense, adaptive=cell.adaptive)
            watch(number, len(cells), cell.name, 0.0)
            done = store.load_cell(key) if store and not fresh else None
            left = _left(stage, done)
            try:
                if left:
                    now = partial(watch, number, len(cells), cell.name)
                    more = run_cell(stage, cell, findings, now, left, notice)
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
    return dataclasses.replace(report, triage=clues), Pictures(stage.batch.inputs.cpu(), recovered)


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
    floors = {name for name, attack in catalog.find("attacks").items() if attack.baseline}
    attacked = {f.defense for f in findings if f.attack not in floors}  # own attacks are in no catalogue
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
