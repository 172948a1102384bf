"""What runs in a process of a Ray cluster: it loads the setup once, then runs the units that it is sent.

Its messages are those of `leakgauge.execution.worker`, as plain pickles in a stream. The work goes on in a thread of
its own, because progress is sent in the middle of it. Where it runs, the same version of Leakgauge and the same data
must be installed; files of the user's own are looked for at the same place as on the machine that started the run.
"""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue

import torch

import leakgauge
from leakgauge.engine.memory import share_memory
from leakgauge.errors import LeakgaugeError
from leakgauge.execution.work_units import UnitRunner, WorkUnit
from leakgauge.execution.worker import Message, Ready, Refused, SetupSource, callbacks_of, packed
from leakgauge.reading.files import VARIABLE
from leakgauge.reading.search_path import look_here_last
from leakgauge.setup.setup import environment

_PROGRESS = 0.5  # seconds between two messages of progress: each goes through the cluster


@dataclass(frozen=True)
class Start:
    """What a process needs besides the setup itself."""

    device: str  # cpu or cuda: Ray shows a process only the GPU that it may use
    processes: int  # that may run on one node, itself among them
    gpus: float  # share of a GPU that is its own
    version: str
    folder: str  # where the run was started
    data: str | None  # LEAKGAUGE_DATA there, for nodes that do not say it themselves

    @classmethod
    def here(cls, device: str, processes: int, gpus: float) -> Start:
        data = os.environ.get(VARIABLE)
        folder = os.getcwd()
        return cls(device, processes, gpus, leakgauge.__version__, folder, data and os.path.abspath(data))


class UnitTask:
    """Lives in a process of its own; `leakgauge.execution.ray_cluster` makes a Ray actor of it."""

    def __init__(self, start: Start, source: bytes) -> None:
        self._start = start
        self._source = source
        self._runner: UnitRunner | None = None

    def load(self) -> Iterator[bytes]:
        """`Ready` at the end."""
        return streamed(self._load)

    def run(self, unit: bytes) -> Iterator[bytes]:
        """Its parts, each as soon as it is there, with notices and progress between them."""

        def work(say: Callable[[Message], None]) -> None:
            assert self._runner is not None, "load comes first"
            loaded: WorkUnit = pickle.loads(unit)
            for part in self._runner.parts(loaded, callbacks_of(say, _PROGRESS)):
                say(part)

        return streamed(work)

    def _load(self, say: Callable[[Message], None]) -> None:
        if self._start.version != leakgauge.__version__:
            raise LeakgaugeError(
                f"a node of the cluster has leakgauge {leakgauge.__version__}, the run was started with "
                f"{self._start.version}; install the same on all nodes"
            )
        with suppress(OSError):  # no such folder here: then nothing of it may be needed
            os.chdir(self._start.folder)
            look_here_last(self._start.folder)
        if self._start.data is not None:
            os.environ.setdefault(VARIABLE, self._start.data)
        share_memory(self._start.processes, None, self._start.gpus)
        source: SetupSource = pickle.loads(self._source)
        setup = source.load(self._start.device)
        self._runner = UnitRunner(setup)
        say(Ready(environment(setup.device)["device"]))


def streamed(work: Callable[[Callable[[Message], None]], None]) -> Iterator[bytes]:
    """What `work` says, while it runs; a failure of it is the last word."""
    said: SimpleQueue[Message | None] = SimpleQueue()

    def to_the_end() -> None:
        torch.set_num_threads(1)
        try:
            work(said.put)
        except BaseException as error:
            said.put(Refused.of(error))
        said.put(None)

    threading.Thread(target=to_the_end, daemon=True).start()
    while (message := said.get()) is not None:
        yield packed(message)
