"""Runs what is missing of some cells, and keeps every finished trial at once.

What is on disk is taken from there. The rest is cut into work units. Each is locked when its turn comes, so that
several processes on one run directory share the work; what another one is running is left for last and then looked up.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from leakgauge.execution.scheduler import Scheduler
from leakgauge.execution.store import Store, Trial
from leakgauge.execution.work_units import Callbacks, Part, WorkUnit, units_of
from leakgauge.setup.plan import Cell
from leakgauge.setup.setup import Setup
from leakgauge.types import Finding

Watch = Callable[[int, int, str, float], None]  # cell number, cells in all, what runs now, share of it done
_LOOK_AGAIN = 0.3  # seconds between looks at what another process is running


@dataclass
class Work:
    """One cell, and the trials of it that are done: from disk or just now."""

    key: str
    cell: Cell
    name: str  # in the progress bar
    changes: Mapping[str, Any] = field(default_factory=dict)  # see `WorkUnit`
    done: dict[int, Trial] = field(default_factory=dict)

    @property
    def findings(self) -> list[Finding]:
        return [self.done[trial].finding for trial in sorted(self.done)]

    def take(self, trials: Mapping[int, Trial]) -> None:
        """These are done. What is on disk may have run when the attack needed no longer name."""
        for number, trial in trials.items():
            self.done[number] = replace(trial, finding=replace(trial.finding, attack=self.cell.label))


@dataclass
class _Claimed:
    """A unit that is ours, until the last of its trials has come back."""

    work: Work
    claim: ExitStack
    left: set[int]


class Resume:
    """The cells of one setup. An interrupt leaves in each `Work` what was done by then."""

    def __init__(
        self, setup: Setup, store: Store | None, scheduler: Scheduler, notice: Callable[[str], None] = lambda _: None
    ) -> None:
        self._setup = setup
        self._store = store
        self._scheduler = scheduler
        self._notice = notice
        self._noticed: set[str] = set()

    def finish(self, works: Sequence[Work], watch: Watch) -> None:
        """Run what is missing of these; `watch` receives how far all of them are."""
        bar = _Bar(works, watch)
        elsewhere, _ = self._run(self._missing(works, bar), bar)
        while elsewhere:
            elsewhere, came = self._run(elsewhere, bar)
            if elsewhere and not came:
                time.sleep(_LOOK_AGAIN)

    def _missing(self, works: Sequence[Work], bar: _Bar) -> Iterator[tuple[Work, WorkUnit]]:
        """What is not on disk, cell by cell as its turn comes."""
        trials, device, slots = self._setup.scenario.trials, self._setup.device, self._scheduler.slots
        for work in works:
            if self._store:
                work.take(self._store.load(work.key))
            left = [t for t in range(trials) if t not in work.done]
            bar.begin(work, left)
            for unit in units_of(work.key, work.cell, left, trials, device, slots, work.changes):
                yield work, unit

    def _run(self, units: Iterable[tuple[Work, WorkUnit]], bar: _Bar) -> tuple[list[tuple[Work, WorkUnit]], int]:
        """Runs the units that no other process is running; gives the others, and how many trials came back."""
        mine: dict[tuple[str, int], _Claimed] = {}
        elsewhere: list[tuple[Work, WorkUnit]] = []
        came = 0

        def ours(claims: ExitStack) -> Iterator[WorkUnit]:
            """Units as the scheduler draws them: each is ours from then on, and was not finished meanwhile."""
            for work, unit in units:
                claim = claims.enter_context(ExitStack())
                if self._store and not claim.enter_context(self._store.claim(*unit.name)):
                    elsewhere.append((work, unit))
                    claim.close()
                    continue
                rest = self._not_finished_meanwhile(work, unit, bar)
                if rest.trials:
                    mine[unit.name] = _Claimed(work, claim, set(rest.trials))
                    yield rest
                else:
                    claim.close()

        callbacks = Callbacks(lambda unit, share: bar.running(mine[unit.name].work, unit, share), self._notice_once)
        with ExitStack() as claims:
            for unit, part in self._scheduler.run(self._setup, ours(claims), callbacks):
                held = mine[unit.name]
                self._keep(held.work, part)
                numbers = [t.finding.trial for t in part.trials]
                came += len(numbers)
                bar.came(held.work, unit, numbers)
                held.left.difference_update(numbers)
                if not held.left:
                    held.claim.close()
        return elsewhere, came

    def _not_finished_meanwhile(self, work: Work, unit: WorkUnit, bar: _Bar) -> WorkUnit:
        """The unit less what another process finished before it was ours."""
        if not self._store or not self._store.finished(unit.key) & set(unit.trials):
            return unit
        there = {n: t for n, t in self._store.load(unit.key).items() if n in unit.trials}
        work.take(there)
        bar.came(work, unit, list(there))
        return unit.without(there)

    def _keep(self, work: Work, part: Part) -> None:
        """On disk before anything else; what could not run is not kept, so that it is tried again next time."""
        ran = [t for t in part.trials if not t.finding.error]
        if self._store and part.whole and ran:
            self._store.save(work.key, ran)
        work.take({t.finding.trial: t for t in part.trials})

    def _notice_once(self, line: str) -> None:
        """Every part of a cell gives the same notices."""
        if line not in self._noticed:
            self._noticed.add(line)
            self._notice(line)


class _Bar:
    """Progress of several cells, of which several may run at once, as that of one."""

    def __init__(self, works: Sequence[Work], watch: Watch) -> None:
        self._cells = len(works)
        self._watch = watch
        self._left: dict[str, set[int]] = {}  # cell -> its trials that have not come back
        self._wanted: dict[str, int] = {}
        self._running: dict[tuple[str, int], float] = {}  # unit -> trials of it that are done, as a fraction

    def begin(self, work: Work, left: Sequence[int]) -> None:
        self._left[work.key], self._wanted[work.key] = set(left), len(left)
        self._show(work)

    def running(self, work: Work, unit: WorkUnit, share: float) -> None:
        came = len(set(unit.trials) - self._left[work.key])
        self._running[unit.name] = max(0.0, share * len(unit.trials) - came)
        self._show(work)

    def came(self, work: Work, unit: WorkUnit, trials: Sequence[int]) -> None:
        self._left[work.key].difference_update(trials)
        self._running.pop(unit.name, None)
        self._show(work)

    def _show(self, work: Work) -> None:
        shares = {}
        for key, wanted in self._wanted.items():
            at_work = sum(done for (k, _), done in self._running.items() if k == key)
            shares[key] = (wanted - len(self._left[key]) + at_work) / wanted if wanted else 1.0
        behind = sum(not self._left[key] and key != work.key for key in shares)
        more = sum(shares.values()) - behind
        ahead = max(0, math.ceil(more - 1e-9) - 1)
        self._watch(min(behind + ahead, self._cells - 1), self._cells, work.name, min(1.0, max(0.0, more - ahead)))
