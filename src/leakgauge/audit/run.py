"""The one audit: victims -> client -> update -> observation -> attack -> finding -> verdict -> report.

`leakgauge.recording.own_update` says what each step is. The victims come from there, simulated or not, with or without
their samples; every command that attacks runs them through `run_audit`. The private batch goes to the client and to the
scores, and nowhere else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from leakgauge.audit.applicability import refuse_unfit, sort_out
from leakgauge.audit.budget import budget_of, searches, why_stopped
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
from leakgauge.recording.sanity import doubt_in, refuse_wrong, sanity
from leakgauge.recording.triage import believed, first_observation, is_claim, triage_of
from leakgauge.setup.plan import Cell, configurations, parse_chain, plan
from leakgauge.setup.setup import Setup, environment
from leakgauge.setup.suites import SECONDS, in_suite
from leakgauge.types import AuditReport, Clue, Fact, Finding, Pictures, Scenario, Skipped, Summary, Verdict
from leakgauge.types.triage import EXPOSED, WRONG
from leakgauge.verdict.bounds import contradicted, upper_sides
from leakgauge.verdict.credible import weighed
from leakgauge.verdict.exposure import exposures
from leakgauge.verdict.film import film_in
from leakgauge.verdict.flags import FLAGS, NO_TRUTH, NOT_AS_CLAIMED
from leakgauge.verdict.gate import Gate
from leakgauge.verdict.roles import floors_in, is_floor
from leakgauge.verdict.summary import conclude, summarise, unscored_verdict

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
    themselves only if `keep_private`. `undefended` adds the bare update for comparison. `notice` receives what speaks
    against the update before any attack starts, and with `triaged` what the first victim's bare update allows. `setup`
    is what was loaded already, if it was. `workers` are processes of this machine that share the work, and `executor`
    is another transport to workers; see `leakgauge.execution.scheduler`. A keyboard interrupt ends the run early: the
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
    clues, doubt = _first_look(setup, triaged, notice)
    store = Store(out, notice=notice) if out else None
    if store:
        store.save_truth(_true_samples(setup) if keep_private or not setup.scored else None, setup.key)
    cells, skipped = sort_out(setup, cells)
    scheduler = Scheduler(executor)
    audit = _Audit(setup, store, Resume(setup, store, scheduler, notice), fresh, watch, skipped)
    with closing(scheduler):
        audit.run(cells)
        report = audit.report(gate, clues, executor, doubt)
        if setup.scenario.ledger and not audit.interrupted:
            report = audit.with_ledger(report, len(cells))
    return report, audit.pictures()


def _first_look(setup: Setup, triaged: bool, notice: Callable[[str], None]) -> tuple[tuple[Clue, ...], str]:
    """What can be said before any attack, and what speaks against the claimed optimiser.

    A saved update that cannot be what it is claimed to be is refused.
    """
    clues = triage_of(setup) if triaged else ()
    refuse_unfit(setup)
    doubts: Sequence[Clue] = clues
    if setup.victims.shared is not None:
        refuse_wrong(clues)
        seen = first_observation(setup, range(setup.victims.trials))
        doubts = clues if triaged else believed(setup, sanity(seen, claimed=is_claim(setup)))
    for clue in doubts:
        if clue.severity == WRONG or (clue.severity == EXPOSED and triaged) or doubt_in([clue]):
            notice(f"{clue.what}: {clue.value}: {clue.meaning}")
    return clues, doubt_in(doubts)


def _true_samples(setup: Setup) -> Tensor:
    """(T, N, *shape), N = 0 where nobody has them."""
    return setup.batch.inputs.cpu() if setup.scored else torch.zeros(setup.victims.trials, 0, *setup.data.shape)


@dataclass
class _Audit:
    """One run: its cells one after another, what is finished in the order of the table, and what is left out."""

    setup: Setup
    store: Store | None
    resume: Resume
    fresh: bool
    watch: Watch
    skipped: list[Skipped]
    interrupted: bool = False
    cells: list[Cell] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    recovered: dict[str, Tensor] = field(default_factory=dict)  # cell name -> (T, (1 + A) N, *shape), blank if not run
    keys: dict[str, str] = field(default_factory=dict)  # cell name -> what its trials are kept under
    frames: dict[str, int] = field(default_factory=dict)  # cell name -> pictures on the way

    def run(self, cells: Sequence[Cell]) -> None:
        """All cells side by side if they were named; those of a suite in turn, each with its share of the time."""
        try:
            if in_suite(self.setup.scenario):
                self._in_turn(cells)
            else:
                self._finish(_works(self.setup, cells), self.watch)
        except KeyboardInterrupt:
            self.interrupted = True
        if self.store:
            self.store.save_cells_of_report(self.keys, self.setup.key)

    def _in_turn(self, cells: Sequence[Cell]) -> None:
        scenario = self.setup.scenario
        seen = first_observation(self.setup, range(scenario.trials))
        budget = budget_of(SECONDS[scenario.suite], seen, scenario.seeds)
        for number, cell in enumerate(cells):
            why = "" if cell.attack.baseline else why_stopped(self.setup, self.findings, self.recovered, cell.defense)
            if why:
                self.skipped.append(Skipped(cell.label, cell.defense, cell.adaptive, why))
                continue
            (work,) = _works(self.setup, [cell])
            work.cell = budget.allotted(cell, cells[number + 1 :])  # how far it gets depends on the clock
            self._finish([work], _one_of(self.watch, number, len(cells)))

    def _finish(self, works: Sequence[Work], watch: Watch) -> None:
        try:
            self._run(works, watch)
        finally:  # an interrupt leaves what was finished by then
            for work in works:
                if work.done:
                    self._add(work)

    def _run(self, works: Sequence[Work], watch: Watch) -> None:
        if self.fresh and self.store:
            for work in works:
                self.store.forget(work.key)
        self.resume.finish(works, watch)

    def _add(self, work: Work) -> None:
        name = work.cell.name
        self.cells.append(work.cell)
        self.findings += compared(self.setup, work.cell, work.findings, self.findings)
        self.keys[name] = work.key
        pictures = in_place(work.done, self.setup.scenario.trials)
        if pictures is not None:
            self.recovered[name] = pictures
            self.frames[name] = max(len(f.film) for f in work.findings)
        work.done.clear()  # to free memory

    def pictures(self) -> Pictures:
        true = _true_samples(self.setup)
        film = {n: film_in(kept, f) for n, kept in self.recovered.items() if (f := self.frames[n])}
        records = {n: shown(kept, self.frames[n], true.shape[1]) for n, kept in self.recovered.items()}
        return Pictures(true, records, film)

    def report(self, gate: Gate | None, clues: tuple[Clue, ...], executor: Transport, doubt: str) -> AuditReport:
        setup, scored = self.setup, self.setup.scored
        if scored:
            findings, rows, verdict, flags = self._scored(gate, doubt)
        else:  # nothing can be weighed: only proofs count
            findings, flags = self.findings, {NO_TRUTH}
            rows = summarise(findings, setup.data)
            verdict = unscored_verdict(findings, setup.victims.trials, setup.victims.samples, doubt)
            flags |= {NOT_AS_CLAIMED} if doubt else set()
        flags |= {flag for row in rows for flag in row.flags}
        machine = {**environment(setup.device), "model state": setup.state, "engine": setup.engine}
        return AuditReport(
            scenario=setup.scenario,
            data=setup.data,
            findings=tuple(findings),
            summary=rows,
            verdict=verdict,
            flags=tuple(FLAGS[flag] for flag in sorted(flags)),
            facts=_facts(setup),
            environment={**machine, **executor.environment},
            interrupted=self.interrupted,
            exposure=exposures(setup, rows, findings) if scored and not self.interrupted else (),
            setup=setup.key,
            clients=setup.victims.names,
            triage=clues,
            skipped=tuple(self.skipped),
        )

    def _scored(self, gate: Gate | None, doubt: str) -> tuple[list[Finding], tuple[Summary, ...], Verdict, set[str]]:
        """Findings, rows, verdict, and the flags of the whole audit."""
        setup = self.setup
        findings, controls = weighed(setup, self.findings, self.recovered)
        rows = summarise(findings, setup.data, controls)
        attacked = {f.defense for f in findings if not is_floor(f.attack)}
        run = [c for c in configurations(setup.scenario) if c in attacked]
        guarantees = {c: next((g for d in reversed(parse_chain(c)) if (g := d.guarantee())), None) for c in run}
        origin = origin_of(setup, findings)
        doubt = "" if origin.sure else doubt  # the batch speaks for the claim
        unproven = "" if origin.sure else doubt or origin.why
        verdict = conclude(rows, findings, run, guarantees, gate, setup.data, upper_sides(setup, run), unproven)
        verdict = dataclasses.replace(verdict, doubt=doubt)
        exceeded = any(contradicted(c.lower, c.upper) for c in verdict.configurations)
        return (
            findings,
            rows,
            verdict,
            {origin.flag, "bound-exceeded" if exceeded else "", NOT_AS_CLAIMED if doubt else ""} - {""},
        )

    def with_ledger(self, report: AuditReport, cells: int) -> AuditReport:
        """The report with what each fact was worth; an interrupt leaves the ledger out."""
        floors = floors_in(report.findings)

        def rerun(change: str, changed: Setup, cell: Cell) -> Sequence[Finding]:
            other = {name: getattr(changed, name) for name in CHANGEABLE}
            work = Work(key_of(cell=_key(self.setup, cell), change=change), cell, f"{cell.name}, {change}", other)
            self._run([work], _one_of(self.watch, cells - 1, cells))
            again = compared(changed, cell, work.findings, floors)
            pictures = in_place(work.done, changed.scenario.trials)
            return weighed(changed, again, {} if pictures is None else {cell.name: pictures}, floors)[0]

        try:
            entries = ledger(self.setup, self.cells, report.findings, report.verdict, rerun)
        except KeyboardInterrupt:
            return dataclasses.replace(report, interrupted=True)
        return dataclasses.replace(report, ledger=entries)


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
    timed = {"suite": setup.scenario.suite} if in_suite(setup.scenario) and searches(cell.attack) else {}
    return key_of(setup=setup.key, **cell.key, **timed)


def _one_of(watch: Watch, number: int, cells: int) -> Watch:
    """Shows the progress of one cell as that of the cell `number` among all."""
    return lambda _, __, name, share: watch(number, cells, name, share)


def _facts(setup: Setup) -> tuple[str, ...]:
    """The facts that an attacker has besides model and update, or reads off what was shared."""
    facts = set(setup.threat_model.facts)
    if setup.public is None:
        facts.discard(Fact.PUBLIC_DATA)  # an own update comes without public samples
    local = setup.scenario.local
    if local.kind == "fedavg" and local.batchnorm == "train" and has_batchnorm(setup.model):
        facts |= first_observation(setup).revealed.keys() & {Fact.BATCHNORM_STATISTICS}
    return tuple(sorted(fact.value for fact in facts))
