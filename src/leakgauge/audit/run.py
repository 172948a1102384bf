"""The pipe: Scenario -> client step (+ defences) -> what the attacker sees -> attacks -> scores -> AuditReport.

The private batch goes to the client step and to the scores, and nowhere else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from torch import Tensor, nn

from leakgauge.audit.applicability import refuse_unfit, sorted_out, without_empty_floors
from leakgauge.audit.budget import Budget, budget_of, searches
from leakgauge.audit.early_stop import stopped_by
from leakgauge.audit.ledger import CHANGEABLE, ledger
from leakgauge.engine.batchnorm import has_batchnorm
from leakgauge.errors import BadInput
from leakgauge.execution.in_process import InProcess
from leakgauge.execution.local import Workers
from leakgauge.execution.resume import Resume, Watch, Work
from leakgauge.execution.scheduler import Scheduler, Transport
from leakgauge.execution.store import Store, in_place
from leakgauge.execution.table_cell import compared
from leakgauge.reading.keys import key_of
from leakgauge.recording.belonging import origin_of
from leakgauge.recording.own_update import IN_PYTHON, recorded_setup, setup_of
from leakgauge.recording.sanity import refuse_wrong
from leakgauge.recording.triage import first_observation, triage_of
from leakgauge.setup.plan import Cell, configurations, parse_chain, plan
from leakgauge.setup.setup import Setup, environment, load_setup
from leakgauge.setup.suites import SECONDS
from leakgauge.types import AuditReport, Fact, Finding, Pictures, Scenario, Skipped
from leakgauge.types.triage import EXPOSED, WRONG
from leakgauge.verdict.bounds import contradicted
from leakgauge.verdict.controls import exposures, upper_sides, weighed
from leakgauge.verdict.film import film_in
from leakgauge.verdict.flags import FLAGS
from leakgauge.verdict.gate import Gate
from leakgauge.verdict.roles import floors_in, is_floor
from leakgauge.verdict.summary import conclude, summarise

__all__ = ["Watch", "audit_update", "in_suite", "run_audit"]


def run_audit(
    scenario: Scenario,
    *,
    out: Path | None = None,
    undefended: bool = True,
    data_root: Path | None = None,
    device: str = "auto",
    fresh: bool = False,
    keep_private: bool = False,
    triaged: bool = False,
    setup: Setup | None = None,
    workers: int = 0,
    executor: Transport | None = None,
    watch: Watch = lambda *_: None,
    notice: Callable[[str], None] = lambda _: None,
) -> tuple[AuditReport, Pictures]:
    """Run every cell of `scenario` and say what was recovered.

    With `out`, each finished trial is kept there and reused by the same scenario unless `fresh`; the private samples
    themselves only if `keep_private`. `undefended` adds
    the bare update for comparison. `notice` is told what is known against an attack before it starts, and with
    `triaged` what the first victim's bare update allows. `stage` is what was loaded already, if it was. `workers` are
    processes of this machine that share the work, and `executor` is another transport to workers; see
    `leakgauge.execution.scheduler`. A keyboard interrupt ends the run early: the report holds the finished trials and
    says so.
    """
    if executor is None:
        executor = Workers(workers, device=device, data_root=data_root) if workers else InProcess()
    if setup is not None and not isinstance(executor, InProcess):
        raise BadInput("workers", allowed="0 for what was loaded in Python", got=executor.slots, do="leave it out")
    gate = Gate.parse(scenario.gate) if scenario.gate is not None else None
    cells = plan(scenario, undefended and scenario.update is None)  # a saved update is what it is
    if setup is None:
        saved = scenario.update is not None
        setup = recorded_setup(scenario, data_root, device) if saved else load_setup(scenario, data_root, device)
        scenario = setup.scenario
    clues = triage_of(setup) if triaged else ()
    refuse_unfit(setup)
    if scenario.update is not None:
        refuse_wrong(clues)
    for clue in clues:
        if clue.severity in (WRONG, EXPOSED):
            notice(f"{clue.what}: {clue.value}: {clue.meaning}")
    store = Store(out, notice=notice) if out else None
    if store:
        store.save_truth(setup.batch.inputs if keep_private else None, setup.key)
    cells, skipped = sorted_out(setup, cells) if in_suite(scenario) else without_empty_floors(setup, cells)
    budget = _budget(setup) if in_suite(scenario) else None
    results = _Results(setup)
    scheduler = Scheduler(executor)
    resume = Resume(setup, store, scheduler, notice)
    interrupted = False
    with closing(scheduler):
        try:
            for number, group in enumerate([[c] for c in cells] if budget else [cells]):
                if budget is not None and (stopping := _stopping(setup, group[0], results.findings, results.recovered)):
                    why = f"settled by {' and '.join(stopping)}: every record was recovered"
                    skipped.append(Skipped(group[0].label, group[0].defense, group[0].adaptive, why))
                    continue
                works = _works(setup, group)
                if budget is not None:  # how far it gets depends on the clock; its key does not
                    works[0].cell = budget.allotted(group[0], cells[number + 1 :])
                if fresh and store:
                    for work in works:
                        store.forget(work.key)
                try:
                    resume.finish(works, _among(watch, number, len(cells)) if budget else watch)
                finally:  # an interrupt leaves what was finished by then
                    results.add(works)
        except KeyboardInterrupt:
            interrupted = True
        if store:
            store.save_cells_of_report(results.keys, setup.key)
        report = _report(setup, results.findings, results.recovered, gate, interrupted)
        where = {**report.environment, **executor.environment}
        report = dataclasses.replace(report, environment=where, triage=clues, skipped=tuple(skipped))
        if scenario.ledger and not interrupted:
            report = _with_ledger(
                setup, report, results.cells, store, fresh, resume, _among(watch, len(cells) - 1, len(cells))
            )
    return report, results.pictures()


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
    setup = setup_of(model, update, inputs, labels, given, device)
    refuse_wrong(triage_of(setup))
    return run_audit(setup.scenario, out=out, undefended=not given.defenses, setup=setup, triaged=True)


def in_suite(scenario: Scenario) -> bool:
    """Does the audit choose its own attacks? Then it may also leave some out."""
    return not scenario.attacks


def _budget(setup: Setup) -> Budget:
    seen = first_observation(setup, range(setup.scenario.trials))
    return budget_of(SECONDS[setup.scenario.suite], seen, setup.scenario.seeds)


def _works(setup: Setup, cells: Sequence[Cell]) -> list[Work]:
    """Each cell under a key of its own, also where two rows come to the same attack."""
    works: dict[str, Work] = {}
    for cell in cells:
        key = _key(setup, cell)
        key = key_of(key=key, label=cell.label) if key in works else key
        works[key] = Work(key, cell, cell.name)
    return list(works.values())


def _stopping(
    setup: Setup, cell: Cell, findings: Sequence[Finding], recovered: Mapping[str, Tensor]
) -> tuple[str, ...]:
    """What settled the cell's configuration before it came; nothing settles a floor."""
    return () if cell.attack.baseline else stopped_by(setup, findings, recovered, cell.defense)


def _key(setup: Setup, cell: Cell) -> str:
    """What a finished cell is kept under. How far a search of a suite gets depends on the clock: its suite names it."""
    allotted = in_suite(setup.scenario) and searches(cell.attack)
    timed = {"suite": setup.scenario.suite} if allotted else {}
    return key_of(setup=setup.key, **cell.key, **timed)


class _Results:
    """What is finished, cell by cell in the order of the table."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self.cells: list[Cell] = []
        self.findings: list[Finding] = []
        self.recovered: dict[str, Tensor] = {}  # cell name -> (T, (1 + A) N, *shape), blank where it was not run
        self.keys: dict[str, str] = {}
        self._frames: dict[str, int] = {}  # cell name -> pictures on the way, where there are any

    def add(self, works: Sequence[Work]) -> None:
        for work in works:
            if not work.done:
                continue
            self.cells.append(work.cell)
            self.findings += compared(self._setup, work.cell, work.findings, self.findings)
            self.keys[work.cell.name] = work.key
            pictures = in_place(work.done, self._setup.scenario.trials)
            if pictures is not None:
                self.recovered[work.cell.name] = pictures
                self._frames[work.cell.name] = max(len(f.film) for f in work.findings)
            work.done.clear()  # what it held is here now

    def pictures(self) -> Pictures:
        size = self._setup.scenario.batch_size
        film = {n: film_in(kept, f) for n, kept in self.recovered.items() if (f := self._frames[n])}
        return Pictures(self._setup.batch.inputs.cpu(), {n: k[:, :size] for n, k in self.recovered.items()}, film)


def _among(watch: Watch, number: int, cells: int) -> Watch:
    """One cell on its own, as one of them all."""
    return lambda _, __, name, share: watch(number, cells, name, share)


def _told(setup: Setup) -> tuple[str, ...]:
    """The facts that an attacker has besides model and update, or reads off what was shared."""
    facts = set(setup.threat_model.facts)
    if setup.public is None:
        facts.discard(Fact.PUBLIC_DATA)  # an own update comes without samples to lend
    local = setup.scenario.local
    if local.kind == "fedavg" and local.batchnorm == "train" and has_batchnorm(setup.model):
        facts |= first_observation(setup).revealed.keys() & {Fact.BATCHNORM_STATISTICS}
    return tuple(sorted(fact.value for fact in facts))


def _with_ledger(
    setup: Setup,
    report: AuditReport,
    cells: Sequence[Cell],
    store: Store | None,
    fresh: bool,
    resume: Resume,
    watch: Watch,
) -> AuditReport:
    """The report with what each fact was worth; an interrupt leaves the ledger out."""
    floors = floors_in(report.findings)

    def rerun(change: str, changed: Setup, cell: Cell) -> Sequence[Finding]:
        key = key_of(cell=_key(setup, cell), change=change)
        if fresh and store:
            store.forget(key)
        other = {name: getattr(changed, name) for name in CHANGEABLE}
        work = Work(key, cell, f"{cell.name}, {change}", other)
        resume.finish([work], watch)
        again = compared(changed, cell, work.findings, floors)
        pictures = in_place(work.done, changed.scenario.trials)
        return weighed(changed, again, {} if pictures is None else {cell.name: pictures}, floors)[0]

    try:
        return dataclasses.replace(report, ledger=ledger(setup, cells, report.findings, report.verdict, rerun))
    except KeyboardInterrupt:
        return dataclasses.replace(report, interrupted=True)


def _report(
    setup: Setup, findings: Sequence[Finding], recovered: Mapping[str, Tensor], gate: Gate | None, interrupted: bool
) -> AuditReport:
    findings, controls = weighed(setup, findings, recovered)
    rows = summarise(findings, setup.data, controls)
    attacked = {f.defense for f in findings if not is_floor(f.attack)}
    run = [c for c in configurations(setup.scenario) if c in attacked]
    guarantees = {c: next((g for d in reversed(parse_chain(c)) if (g := d.guarantee())), None) for c in run}
    origin = origin_of(setup, findings)
    unproven = "" if origin.sure else origin.why
    verdict = conclude(rows, findings, run, guarantees, gate, setup.data, upper_sides(setup, run), unproven)
    raised = {flag for row in rows for flag in row.flags}
    if any(contradicted(c.lower, c.upper) for c in verdict.configurations):
        raised.add("bound-exceeded")
    if origin.flag:
        raised.add(origin.flag)
    return AuditReport(
        scenario=setup.scenario,
        data=setup.data,
        findings=tuple(findings),
        summary=rows,
        verdict=verdict,
        flags=tuple(FLAGS[flag] for flag in sorted(raised)),
        facts=_told(setup),
        environment=environment(setup.batch.inputs.device) | {"model state": setup.state, "engine": setup.engine},
        interrupted=interrupted,
        exposure=() if interrupted else exposures(setup, rows, findings),
        setup=setup.key,
    )
