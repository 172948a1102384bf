"""Gives work units to workers, and decides what becomes of the unit of a worker that dies.

A `Scheduler` draws a unit when it has room for one, and no sooner: its caller holds a lock on each unit that was drawn,
so processes that share a run directory share the work. It yields `(unit, part)` as soon as a part is there, in any
order, and each trial once. What a lost worker had not finished is run by another one. After so many losses over one
unit its trials come back as failed, with the reason.

A `Transport` starts workers and exchanges messages with them: `InProcess` has one worker, this process; `local.Workers`
has processes of this machine, and `ray.OnRay` those of a cluster. To run elsewhere, write another one: it sends
`worker.packed(SetupSource.of(setup, data_root))` there once and units after it. Where a unit begins and ends depends on
the kind of device alone, because trials round alike only beside the same others: so the numbers of a run do not depend
on its transport.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from leakgauge.errors import LeakgaugeError
from leakgauge.execution.work_units import Callbacks, Part, UnitRunner, WorkUnit, failed_part
from leakgauge.execution.worker import Finished, Message, Notice, Progress, Ready, Refused
from leakgauge.setup.setup import Setup

STARTS = 50  # workers in a row that may be lost before they are ready
Handle = Any  # how a transport holds a worker


@dataclass(frozen=True)
class Loss:
    """A worker is gone. How many such losses are too many depends on the cause, which the transport knows."""

    what: str  # "worker processes died over it, the last by SIGKILL"
    allowed: int  # so many of these over one unit, with no trial done in between, and it is given up
    never_ready: LeakgaugeError  # raised after `starts` losses in a row before a worker was ready
    starts: int
    memory: bool = False  # it needed more than there is: fewer trials side by side may fit


class Transport(Protocol):
    """Starts workers somewhere and exchanges messages with them; the scheduler decides on their units."""

    @property
    def slots(self) -> int:
        """How many units run at once; may change."""

    @property
    def environment(self) -> Mapping[str, str]:
        """For the report: facts of the place where they ran that differ from this process."""

    def load(self, setup: Setup) -> None:
        """Workers that are started from now on load this setup; those of another one were ended before."""

    def start(self) -> Handle:
        """One more worker; it sends `Ready` when it has loaded."""

    def send(self, worker: Handle, unit: WorkUnit, callbacks: Callbacks, /) -> None:
        """To a worker that is ready. `callbacks` are for work in this process; other workers send messages."""

    def messages(self, workers: Sequence[Handle]) -> Iterator[tuple[Handle, Message | Loss]]:
        """Waits until one of them sends a message or is lost; may come back with nothing after a while."""

    def end(self, workers: Sequence[Handle]) -> None:
        """They end at once, whatever they do; also lost ones, which may only be out of reach."""


class InProcess:
    """A `Transport` whose one worker is this process. It is ready at once, and never lost."""

    slots = 1
    environment: Mapping[str, str] = {}

    def __init__(self) -> None:
        self._setup: Setup | None = None
        self._parts: Iterator[Part] | None = None  # of the unit that was sent last

    def load(self, setup: Setup) -> None:
        self._setup = setup

    def start(self) -> UnitRunner:
        assert self._setup is not None, "load comes first"
        return UnitRunner(self._setup)

    def send(self, worker: UnitRunner, unit: WorkUnit, callbacks: Callbacks) -> None:
        self._parts = worker.parts(unit, callbacks)

    def messages(self, workers: Sequence[UnitRunner]) -> Iterator[tuple[UnitRunner, Message]]:
        (worker,) = workers
        if self._parts is None:
            yield worker, Ready()
            return
        for part in self._parts:
            yield worker, part
            if not part.whole:
                raise KeyboardInterrupt
        yield worker, Finished()

    def end(self, _: Sequence[UnitRunner]) -> None:
        self._setup, self._parts = None, None


@dataclass
class _Attempt:
    """A unit on its way, less what of it came back."""

    unit: WorkUnit
    losses: Counter[int] = field(default_factory=Counter)  # since a trial of it came back; by how many are allowed


@dataclass
class _Worker:
    handle: Handle
    ready: bool = False
    attempt: _Attempt | None = None


class Scheduler:
    """Runs units on the workers of a transport, which are started when they are needed and kept until `close`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._key = ""  # of the setup that the workers have loaded
        self._workers: list[_Worker] = []
        self._lost_early = 0

    @property
    def slots(self) -> int:
        return self._transport.slots

    def run(self, setup: Setup, units: Iterator[WorkUnit], callbacks: Callbacks) -> Iterator[tuple[WorkUnit, Part]]:
        """All parts of all units; each with its unit less what came back before."""
        if self._key != setup.key:
            self.close()
            self._transport.load(setup)
            self._key = setup.key
        waiting: deque[_Attempt] = deque()
        more = True
        while True:
            while more and len(waiting) < self.slots - sum(w.attempt is not None for w in self._workers):
                unit = next(units, None)
                more = unit is not None
                if unit is not None:
                    waiting.append(_Attempt(unit))
            self._hand_out(waiting, callbacks)
            if not waiting and not any(w.attempt for w in self._workers):
                return
            for handle, message in self._transport.messages([w.handle for w in self._workers]):
                worker = next(w for w in self._workers if w.handle is handle)
                yield from self._take(message, worker, waiting, setup, callbacks)

    def close(self) -> None:
        """All workers end at once; only what they were doing is lost."""
        self._transport.end([w.handle for w in self._workers])
        self._workers.clear()
        self._key = ""

    def _hand_out(self, waiting: deque[_Attempt], callbacks: Callbacks) -> None:
        for worker in self._workers:
            if waiting and worker.ready and worker.attempt is None:
                worker.attempt = waiting.popleft()
                self._transport.send(worker.handle, worker.attempt.unit, callbacks)
        starting = sum(not w.ready for w in self._workers)
        for _ in range(min(len(waiting) - starting, self.slots - len(self._workers))):
            self._workers.append(_Worker(self._transport.start()))

    def _take(
        self, message: Message | Loss, worker: _Worker, waiting: deque[_Attempt], setup: Setup, callbacks: Callbacks
    ) -> Iterator[tuple[WorkUnit, Part]]:
        attempt = worker.attempt
        match message:
            case Loss():
                yield from self._replace(worker, message, waiting, setup)
            case Ready():
                worker.ready, self._lost_early = True, 0
            case Refused():
                defect = RuntimeError(f"in a worker:\n{message.text}")
                raise LeakgaugeError(message.text) if message.expected else defect
            case Notice():
                callbacks.notice(message.line)
            case Finished():
                worker.attempt = None
            case Progress() if attempt is not None:
                callbacks.progress(attempt.unit, message.share)
            case Part() if attempt is not None:
                whole = attempt.unit
                attempt.unit = whole.without(t.finding.trial for t in message.trials)
                attempt.losses.clear()
                yield whole, message

    def _replace(
        self, worker: _Worker, loss: Loss, waiting: deque[_Attempt], setup: Setup
    ) -> Iterator[tuple[WorkUnit, Part]]:
        """The rest of its unit waits for another worker, or has failed."""
        self._transport.end([worker.handle])
        self._workers.remove(worker)
        if not worker.ready:
            self._lost_early += 1
            if self._lost_early >= loss.starts:
                raise loss.never_ready
        attempt = worker.attempt
        if attempt is None or not attempt.unit.trials:
            return
        side_by_side = attempt.unit.at_once or len(attempt.unit.trials)
        if loss.memory and side_by_side > 1:
            attempt.unit = replace(attempt.unit, at_once=side_by_side // 2)
        else:
            attempt.losses[loss.allowed] += 1
        if attempt.losses[loss.allowed] < loss.allowed:
            waiting.append(attempt)
            return
        counted = f"given up: {attempt.losses.total()} " if loss.allowed > 1 else ""
        yield attempt.unit, failed_part(setup, attempt.unit, counted + loss.what)
