"""Worker processes of this machine.

Each is spawned, with one torch thread on a CPU or a GPU of its own. One that holds more memory than it may ends itself,
and its unit is run again with half as many trials side by side.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import re
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import ModuleType

import torch

from leakgauge.errors import BadInput, LeakgaugeError
from leakgauge.execution.scheduler import STARTS, Loss
from leakgauge.execution.work_units import Callbacks, WorkUnit
from leakgauge.execution.worker import Message, SetupSource, packed, receive, send
from leakgauge.execution.worker_life import OVER_MEMORY, begin
from leakgauge.reading.search_path import safe_children
from leakgauge.setup.setup import Setup, pick_device

DEATHS = 3  # of workers over one unit, before any of its trials is done: by then it is the unit
KILLS = 30  # the same by SIGKILL, which comes from outside: from a person, or a system that is short of memory
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


@dataclass
class _Worker:
    process: SpawnProcess
    pipe: Connection
    device: str


class Workers:
    """A `Transport` to so many processes, each of which may hold `memory` bytes."""

    environment: Mapping[str, str] = {"threads": "1"}

    def __init__(self, count: int, *, device: str = "auto", data_root: Path | None = None, memory: int | None = None):
        if type(count) is not int or count < 1:
            raise BadInput("workers", allowed="a whole number from 1", got=repr(count), do="for example --workers 4")
        where = pick_device(device)
        self._free = ["cpu"] * count  # devices that no worker uses
        if where.type == "cuda":
            there = torch.cuda.device_count() if where.index is None else 1
            if count > there:
                allowed = f"at most {there}, one for each GPU"
                raise BadInput("workers", allowed=allowed, got=count, do="use fewer, or --device cpu")
            self._free = [f"cuda:{i}" for i in range(count)] if where.index is None else [str(where)]
        self.slots, self._data_root, self._memory = count, data_root, memory
        self._source = b""

    def load(self, setup: Setup) -> None:
        self._source = packed(SetupSource.of(setup, self._data_root))

    def start(self) -> _Worker:
        device, spawning = self._free.pop(0), multiprocessing.get_context("spawn")
        ours, theirs = spawning.Pipe()
        given = (os.getpid(), theirs, self._source, device, self.slots, self._memory)
        process = spawning.Process(target=begin, args=given, daemon=True)
        with _no_interrupts(), _no_main_module(), safe_children():
            process.start()
        theirs.close()  # the worker's copy is the only one: when it dies, the pipe ends
        return _Worker(process, ours, device)

    def send(self, worker: _Worker, unit: WorkUnit, _: Callbacks) -> None:
        with suppress(OSError):  # it has just died; its pipe shows that next
            send(worker.pipe, unit)

    def messages(self, workers: Sequence[_Worker]) -> Iterator[tuple[_Worker, Message | Loss]]:
        for pipe in wait([w.pipe for w in workers]):
            worker = next(w for w in workers if w.pipe is pipe)
            try:
                message: Message | Loss = receive(worker.pipe)
            except (EOFError, OSError, pickle.UnpicklingError):  # also in the middle of a message
                worker.process.join()
                message = self._loss(worker.process.exitcode or 0)
            yield worker, message

    def end(self, workers: Sequence[_Worker]) -> None:
        for worker in workers:
            worker.process.kill()
        for worker in workers:
            worker.process.join()
            worker.pipe.close()
            self._free.append(worker.device)

    def _loss(self, code: int) -> Loss:
        """A worker that is killed while it loads is replaced; one that ends by itself would do so again."""
        if code == OVER_MEMORY:
            limit, allowed = f"{(self._memory or 0) / 10**9:.3g} GB", "enough to load model and data"
            error = BadInput("worker memory", allowed=allowed, got=limit, do="raise --worker-memory")
            return Loss(f"needs more memory than {limit}", 1, error, 1, memory=True)
        what = f"worker processes died over it, the last {_cause(code)}"
        if code >= 0:
            text = f"a worker process ended {_cause(code)} before it was ready; try without --workers"
            return Loss(what, DEATHS, LeakgaugeError(text), 1)
        text = f"{STARTS} worker processes in a row died before they were ready, the last {_cause(code)}"
        return Loss(what, KILLS if code == -signal.SIGKILL else DEATHS, LeakgaugeError(text), STARTS)


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
