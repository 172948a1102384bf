"""The one audit: victims -> client -> update -> observation -> attack -> finding -> verdict -> report.

`leakgauge.recording.own_update` says what each step is. The victims come from there, simulated or not, with or without
their samples; every command that attacks runs them through `run_audit`. The private batch goes to the client and to the
scores, and nowhere else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import torch
from torch import Tensor

from leakgauge.audit.applicability import refuse_unfit, sort_out
from leakgauge.audit.budget import Budget, budget_of, searches
from leakgauge.audit.early_stop import why_stopped
from leakgauge.audit.ledger import CHANGEABLE, ledger
from leakgauge.engine.batchnorm import has_batchnorm
from leakgauge.errors import BadInput
from leakgauge.execution.local import Workers
from leakgauge.execution.resume import Resume, Watch, Work
from leakgauge.execution.scheduler import InProcess, Scheduler, Transport
from leakgauge.execution.store import Store, in_place, shown
from leakgauge.execution.table_cell import compared
from leakgauge.reading.keys import key_of
from leakgauge.recording.belonging import origin_of
from leakgauge.recording.own_update import setup_for
from leakgauge.recording.sanity import refuse_wrong, sanity
from leakgauge.recording.triage import first_observation, triage_of
from leakgauge.setup.plan import Cell, configurations, parse_chain, plan
from leakgauge.setup.setup import Setup, environment
from leakgauge.setup.suites import SECONDS, in_suite
from leakgauge.types import AuditReport, Clue, Fact, Finding, Pictures, Scenario, Skipped, Summary, Verdict
from leakgauge.types.triage import EXPOSED, WRONG
from leakgauge.verdict.bounds import contradicted
from leakgauge.verdict.controls import exposures, upper_sides, weighed
from leakgauge.verdict.film import film_in
from leakgauge.verdict.flags import FLAGS, NO_TRUTH
from leakgauge.verdict.gate import Gate
from leakgauge.verdict.proven import unscored_verdict
from leakgauge.verdict.roles import floors_in, is_floor
from leakgauge.verdict.summary import conclude, summarise

__all__ = ["Watch", "run_audit"]


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
    themselves only if `keep_private`. `undefended` adds the bare update for comparison. `notice` is told what is known
    against an attack before it starts, and with `triaged` what the first victim's bare update allows. `setup` is what
    was loaded already, if it was. `workers` are processes of this machine that share the work, and `executor` is
    another transport to workers; see `leakgauge.execution.scheduler`. A keyboard interrupt ends the run early: the
    report holds the finished trials and says so.
    """
    if executor is None:
        executor = Workers(workers, device=device, data_root=data_root) if workers else InProcess()
    if setup is not None and not isinstance(executor, InProcess):
        raise BadInput("workers", allowed="0 for what was loaded in Python", got=executor.slots, do="leave it out")
    gate = Gate.parse(scenario.gate) if scenario.gate is not None else None
    cells = plan(scenario, undefended and scenario.update is None)  # a saved update is what it is
    if setup is None:
        setup = setup_for(scenario, data_root, device)
    clues = _looked_at(setup, triaged, notice)
    store = Store(out, notice=notice) if out else None
    if store:
        store.save_truth(_true_samples(setup) if keep_private or not setup.scored else None, setup.key)
    cells, skipped = sort_out(setup, cells)
    scheduler = Scheduler(executor)
    audit = _Audit(setup, store, scheduler, fresh, watch, notice)
    with closing(scheduler):
        audit.run(cells)
        audit.skipped[:0] = skipped
        report = _report(setup, audit.results, gate, audit.interrupted)
        where = {**report.environment, **executor.environment}
        report = dataclasses.replace(report, environment=where, triage=clues, skipped=tuple(audit.skipped))
        if setup.scenario.ledger and not audit.interrupted:
            report = audit.with_ledger(report, len(cells))
    return report, audit.results.pictures()


def _looked_at(setup: Setup, triaged: bool, notice: Callable[[str], None]) -> tuple[Clue, ...]:
    """What can be said before any attack. A saved update that cannot be what it is claimed to be is refused."""
    clues = triage_of(setup) if triaged else ()
    refuse_unfit(setup)
    doubts: Sequence[Clue] = clues
    if setup.victims.shared is not None:
        refuse_wrong(clues)
        doubts = clues if triaged else sanity(first_observation(setup, range(setup.victims.trials)))
    for clue in doubts:
        if clue.severity == WRONG or (clue.severity == EXPOSED and triaged):
            notice(f"{clue.what}: {clue.value}: {clue.meaning}")
    return clues


def _true_samples(setup: Setup) -> Tensor:
    """(T, N, *shape), N = 0 where nobody has them."""
    return setup.batch.inputs.cpu() if setup.scored else torch.zeros(setup.victims.trials, 0, *setup.data.shape)


class _Audit:
    """One run: the cells one after another, what is finished of them, and what was left out."""

    def __init__(
        self,
        setup: Setup,
        store: Store | None,
        scheduler: Scheduler,
        fresh: bool,
        watch: Watch,
        notice: Callable[[str], None],
    ) -> None:
        self._setup = setup
        self._store = store
        self._fresh = fresh
        self._watch = watch
        self._resume = Resume(setup, store, scheduler, notice)
        self.results = _Results(setup)
        self.skipped: list[Skipped] = []
        self.interrupted = False

    def run(self, cells: Sequence[Cell]) -> None:
        """All cells side by side if they were named; those of a suite in turn, each with its share of the time."""
        try:
            if in_suite(self._setup.scenario):
                self._in_turn(cells)
            else:
                self._finish(_works(self._setup, cells), self._watch)
        except KeyboardInterrupt:
            self.interrupted = True
        if self._store:
            self._store.save_cells_of_report(self.results.keys, self._setup.key)

    def _in_turn(self, cells: Sequence[Cell]) -> None:
        budget = _budget(self._setup)
        for number, cell in enumerate(cells):
            if why := _why_not_worth_it(self._setup, cell, self.results):
                self.skipped.append(Skipped(cell.label, cell.defense, cell.adaptive, why))
                continue
            works = _works(self._setup, [cell])
            works[0].cell = budget.allotted(cell, cells[number + 1 :])  # how far it gets depends on the clock
            self._finish(works, _among(self._watch, number, len(cells)))

    def _finish(self, works: Sequence[Work], watch: Watch) -> None:
        self._forget(works)
        try:
            self._resume.finish(works, watch)
        finally:  # an interrupt leaves what was finished by then
            self.results.add(works)

    def _forget(self, works: Sequence[Work]) -> None:
        if self._fresh and self._store:
            for work in works:
                self._store.forget(work.key)

    def with_ledger(self, report: AuditReport, cells: int) -> AuditReport:
        """The report with what each fact was worth; an interrupt leaves the ledger out."""
        floors = floors_in(report.findings)
        watch = _among(self._watch, cells - 1, cells)

        def rerun(change: str, changed: Setup, cell: Cell) -> Sequence[Finding]:
            other = {name: getattr(changed, name) for name in CHANGEABLE}
            key = key_of(cell=_key(self._setup, cell), change=change)
            work = Work(key, cell, f"{cell.name}, {change}", other)
            self._forget([work])
            self._resume.finish([work], watch)
            again = compared(changed, cell, work.findings, floors)
            pictures = in_place(work.done, changed.scenario.trials)
            return weighed(changed, again, {} if pictures is None else {cell.name: pictures}, floors)[0]

        try:
            entries = ledger(self._setup, self.results.cells, report.findings, report.verdict, rerun)
        except KeyboardInterrupt:
            return dataclasses.replace(report, interrupted=True)
        return dataclasses.replace(report, ledger=entries)


def _why_not_worth_it(setup: Setup, cell: Cell, results: _Results) -> str:
    """What settled the cell's configuration before it came; nothing settles a floor."""
    if cell.attack.baseline:
        return ""
    return why_stopped(setup, results.findings, results.recovered, cell.defense)


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
        setup = self._setup
        true = _true_samples(setup)
        film = {n: film_in(kept, f) for n, kept in self.recovered.items() if (f := self._frames[n])}
        records = {n: shown(kept, self._frames[n], true.shape[1]) for n, kept in self.recovered.items()}
        return Pictures(true, records, film)


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


def _report(setup: Setup, results: _Results, gate: Gate | None, interrupted: bool) -> AuditReport:
    said = _scored if setup.scored else _unscored
    findings, rows, verdict, flags = said(setup, results.findings, results.recovered, gate)
    raised = flags | {flag for row in rows for flag in row.flags}
    return AuditReport(
        scenario=setup.scenario,
        data=setup.data,
        findings=tuple(findings),
        summary=rows,
        verdict=verdict,
        flags=tuple(FLAGS[flag] for flag in sorted(raised)),
        facts=_told(setup),
        environment=environment(setup.device) | {"model state": setup.state, "engine": setup.engine},
        interrupted=interrupted,
        exposure=() if interrupted or not setup.scored else exposures(setup, rows, findings),
        setup=setup.key,
        clients=setup.victims.names,
    )


_Said = tuple[Sequence[Finding], tuple[Summary, ...], Verdict, set[str]]  # with the flags of the whole audit


def _scored(setup: Setup, found: Sequence[Finding], recovered: Mapping[str, Tensor], gate: Gate | None) -> _Said:
    findings, controls = weighed(setup, found, recovered)
    rows = summarise(findings, setup.data, controls)
    attacked = {f.defense for f in findings if not is_floor(f.attack)}
    run = [c for c in configurations(setup.scenario) if c in attacked]
    guarantees = {c: next((g for d in reversed(parse_chain(c)) if (g := d.guarantee())), None) for c in run}
    origin = origin_of(setup, findings)
    unproven = "" if origin.sure else origin.why
    verdict = conclude(rows, findings, run, guarantees, gate, setup.data, upper_sides(setup, run), unproven)
    flags = {origin.flag} - {""}
    if any(contradicted(c.lower, c.upper) for c in verdict.configurations):
        flags.add("bound-exceeded")
    return findings, rows, verdict, flags


def _unscored(setup: Setup, found: Sequence[Finding], _: Mapping[str, Tensor], __: Gate | None) -> _Said:
    """Without samples there is nothing to weigh: what is proven, and that the rest was not scored."""
    verdict = unscored_verdict(found, setup.victims.trials, setup.victims.samples)
    return found, summarise(found, setup.data), verdict, {NO_TRUTH}
