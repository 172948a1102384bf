"""Processes of this machine that run the chunks of an audit, and what becomes of one that dies.

Each is spawned, with one torch thread on a CPU or a GPU of its own. A worker that dies, of whatever cause, is replaced,
and what it had not finished of its chunk is run again; after so many deaths over one chunk its trials stand as failed,
with the reason. A chunk that needs more memory than a worker may use is run again with half as many trials at once.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import re
import signal
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import ModuleType

import torch

from leakgauge.errors import BadInput, LeakgaugeError
from leakgauge.execution.work_units import Part, Told, WorkUnit, failed_part
from leakgauge.execution.worker import Finished, Notice, Progress, Ready, Refused, SetupSource, packed, receive, send
from leakgauge.execution.worker_life import OVER_MEMORY, begin
from leakgauge.reading.search_path import safe_children
from leakgauge.setup.setup import Setup, pick_device

DEATHS = 3  # of workers over one chunk, before any of its trials is done: by then it is the chunk
KILLS = 30  # the same by SIGKILL, which comes from outside: from somebody, or from a system that is short of memory
STARTS = 50  # of workers in a row that are killed before they are ready
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


@dataclass
class _Attempt:
    """A chunk on its way, less what of it came back."""

    unit: WorkUnit
    deaths: int = 0  # since a trial of it came back
    kills: int = 0


@dataclass
class _Worker:
    process: SpawnProcess
    pipe: Connection
    device: str
    ready: bool = False
    attempt: _Attempt | None = None


class Workers:
    """An `Executor` of so many local processes, started when they are needed and kept until `close`."""

    environment: Mapping[str, str] = {"threads": "1"}

    def __init__(self, count: int, *, device: str = "auto", data_root: Path | None = None, memory: int | None = None):
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise BadInput("workers", allowed="a whole number from 1", got=repr(count), do="for example --workers 4")
        where = pick_device(device)
        self._devices = ["cpu"] * count
        if where.type == "cuda":
            there = torch.cuda.device_count() if where.index is None else 1
            if count > there:
                raise BadInput(
                    "workers", allowed=f"at most {there}, one for each GPU", got=count, do="use fewer, or --device cpu"
                )
            self._devices = [f"cuda:{i}" for i in range(count)] if where.index is None else [str(where)]
        self.slots = count
        self._data_root = data_root
        self._memory = memory
        self._source = b""
        self._workers: list[_Worker] = []
        self._killed_early = 0

    def run(self, setup: Setup, units: Iterator[WorkUnit], told: Told) -> Iterator[tuple[WorkUnit, Part]]:
        """See `leakgauge.execution.work_units`."""
        if not self._source:
            self._source = packed(SetupSource.of(setup, self._data_root))
        waiting: deque[_Attempt] = deque()
        more = True
        while True:
            while more and len(waiting) < self.slots - sum(w.attempt is not None for w in self._workers):
                unit = next(units, None)
                more = unit is not None
                if unit is not None:
                    waiting.append(_Attempt(unit))
            self._hand_out(waiting)
            if not waiting and not any(w.attempt for w in self._workers):
                return
            for pipe in wait([w.pipe for w in self._workers]):
                worker = next(w for w in self._workers if w.pipe is pipe)
                yield from self._hear(worker, waiting, setup, told)

    def close(self) -> None:
        """All workers end at once; what they were at is lost, and nothing else."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.pipe.close()
        self._workers.clear()

    def _hand_out(self, waiting: deque[_Attempt]) -> None:
        for worker in self._workers:
            if waiting and worker.ready and worker.attempt is None:
                worker.attempt = waiting.popleft()
                with suppress(OSError):  # it has just died; its pipe says so next
                    send(worker.pipe, worker.attempt.unit)
        starting = sum(not w.ready for w in self._workers)
        for _ in range(min(len(waiting) - starting, self.slots - len(self._workers))):
            self._start()

    def _start(self) -> None:
        taken = [w.device for w in self._workers]
        device = next(d for d in self._devices if d == "cpu" or d not in taken)
        ours, theirs = multiprocessing.get_context("spawn").Pipe()
        process = multiprocessing.get_context("spawn").Process(
            target=begin, args=(os.getpid(), theirs, self._source, device, self.slots, self._memory), daemon=True
        )
        with _no_interrupts(), _no_main_module(), safe_children():
            process.start()
        theirs.close()  # the worker's copy is the only one: when it dies, the pipe ends
        self._workers.append(_Worker(process, ours, device))

    def _hear(
        self, worker: _Worker, waiting: deque[_Attempt], setup: Setup, told: Told
    ) -> Iterator[tuple[WorkUnit, Part]]:
        """One message of a worker, or its death."""
        try:
            message = receive(worker.pipe)
        except (EOFError, OSError, pickle.UnpicklingError):  # also in the middle of a word
            yield from self._bury(worker, waiting, setup)
            return
        attempt = worker.attempt
        if isinstance(message, Ready):
            worker.ready, self._killed_early = True, 0
        elif isinstance(message, Refused):
            raise LeakgaugeError(message.text) if message.expected else RuntimeError(f"in a worker:\n{message.text}")
        elif isinstance(message, Notice):
            told.notice(message.line)
        elif isinstance(message, Finished):
            worker.attempt = None
        elif isinstance(message, Progress) and attempt is not None:
            told.progress(attempt.unit, message.share)
        elif isinstance(message, Part) and attempt is not None:
            whole = attempt.unit
            left = whole.without(t.finding.trial for t in message.trials)
            attempt.unit, attempt.deaths, attempt.kills = left, 0, 0
            yield whole, message

    def _bury(self, worker: _Worker, waiting: deque[_Attempt], setup: Setup) -> Iterator[tuple[WorkUnit, Part]]:
        worker.process.join()
        worker.pipe.close()
        self._workers.remove(worker)
        code = worker.process.exitcode or 0
        attempt = worker.attempt
        if not worker.ready:
            self._never_ready(code)
        if attempt is None or not attempt.unit.trials:
            return
        killed = code == -signal.SIGKILL
        attempt.kills, attempt.deaths = attempt.kills + killed, attempt.deaths + (not killed)
        if code == OVER_MEMORY:
            side_by_side = attempt.unit.at_once or len(attempt.unit.trials)
            if side_by_side > 1:
                attempt.unit = replace(attempt.unit, at_once=side_by_side // 2)
                waiting.append(attempt)
                return
            yield attempt.unit, failed_part(setup, attempt.unit, f"needs more memory than {self._limit()}")
        elif attempt.deaths >= DEATHS or attempt.kills >= KILLS:
            died = attempt.deaths + attempt.kills
            why = f"given up: {died} worker processes died over it, the last {_cause(code)}"
            yield attempt.unit, failed_part(setup, attempt.unit, why)
        else:
            waiting.append(attempt)

    def _never_ready(self, code: int) -> None:
        """A worker that is killed while it loads is replaced; one that ends by itself would do so again."""
        if code == OVER_MEMORY:
            raise BadInput(
                "worker memory", allowed="enough to load model and data", got=self._limit(), do="raise --worker-memory"
            )
        if code >= 0:
            raise LeakgaugeError(f"a worker process ended {_cause(code)} before it was ready; try without --workers")
        self._killed_early += 1
        if self._killed_early >= STARTS:
            raise LeakgaugeError(
                f"{STARTS} worker processes in a row died before they were ready, the last {_cause(code)}"
            )

    def _limit(self) -> str:
        return f"{(self._memory or 0) / 10**9:.3g} GB"


def memory_from_text(text: str) -> int:
    """`4GB`, `500 MB`, `2GiB` -> bytes."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?I?)B?\s*", text.upper())
    size = int(float(found[1]) * _UNITS[found[2]]) if found and found[2] in _UNITS else 0
    if size <= 0:
        raise BadInput("--worker-memory", allowed="a size such as 4GB or 500MB", got=repr(text), do="for example 4GB")
    return size


def _cause(code: int) -> str:
    if code >= 0:
        return f"with exit code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """A worker that starts in here never sees an interrupt; one that comes meanwhile reaches us afterwards."""
    if not hasattr(signal, "pthread_sigmask"):  # no such thing on this system: a worker that starts may complain
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _no_main_module() -> Iterator[None]:
    """A spawned process would run the starter's script once more, to find there what it is sent; nothing of ours is."""
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script
