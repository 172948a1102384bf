"""Workers on a Ray cluster, while nodes come and go.

    leakgauge audit --on ray            a cluster of this machine alone, started and ended with the run
    leakgauge audit --on ray=auto       the one that runs here, or ray=HOST:PORT

As many processes as the cluster has room for, each with one CPU and one torch thread or its share of a GPU. Each loads
the setup once, then runs the units that it is sent. Its messages are those of `leakgauge.execution.worker`, as plain
pickles in a stream. Where it runs, the same version of Leakgauge and the same data must be installed; files of the
user's own are looked for at the same place as on the machine that started the run.
"""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from types import ModuleType
from typing import Any

import torch

import leakgauge
from leakgauge.engine.memory import share_memory
from leakgauge.errors import BadInput, LeakgaugeError
from leakgauge.execution.ray_cluster import gist
from leakgauge.execution.scheduler import STARTS, Loss
from leakgauge.execution.work_units import Callbacks, UnitRunner, WorkUnit
from leakgauge.execution.worker import Finished, Message, Notice, Ready, Refused, SetupSource, callbacks_of, packed
from leakgauge.reading.files import VARIABLE
from leakgauge.reading.search_path import look_here_last
from leakgauge.setup.setup import Setup, environment, pick_device

LOSSES = 10  # of processes over one unit, before any of its trials is done
_LOOK = 1.0  # seconds between looks at how many nodes there are
_LONG = 60.0  # seconds without any process until a notice says why nothing happens
_PROGRESS = 0.5  # seconds between two messages of progress: each goes through the cluster


@dataclass
class _Task:
    """A process of the cluster; its messages come in `stream`, or it waits for work."""

    remote: Any
    stream: Any
    ready: bool = False


class OnRay:
    """A `Transport` to a cluster, by a Ray that is connected to it; see `ray_cluster.connected`.

    `at_most` processes are asked for even if there is no room for them yet, on clusters that grow on demand.
    """

    def __init__(
        self,
        ray: ModuleType,
        *,
        device: str = "auto",
        data_root: Path | None = None,
        at_most: int | None = None,
        gpus: float = 1.0,
    ) -> None:
        where = pick_device(device)
        if ":" in device:
            raise BadInput("device", allowed="auto, cpu or cuda on a cluster", got=device, do="Ray chooses the GPU")
        if not 0 < gpus <= 1:
            raise BadInput("GPUs for each task", allowed="above 0 and at most 1", got=gpus, do="for example 0.5")
        self._ray, self._actor = ray, ray.remote(UnitTask)
        self._device, self._data_root, self._at_most = where.type, data_root, at_most
        self._gpus = gpus if where.type == "cuda" else 0.0  # of each process
        self._need = f"1 CPU and {gpus:g} GPU" if self._gpus else "1 CPU"
        self._source: Any = None
        self._fit: list[int] = []
        self._looked = -_LOOK
        self._idle_since = 0.0
        self._devices: set[str] = set()
        self._nodes = 0  # the most there were
        if not sum(self._fit_now()) and at_most is None:
            allowed = f"a cluster of which a node has {self._need}"
            do = "add one, or say with --workers how many tasks to wait for"
            raise BadInput("--on ray", allowed=allowed, got="none such", do=do)

    @property
    def slots(self) -> int:
        """As many processes as fit, or as were asked for; changes as nodes come and go."""
        return max(1, self._at_most or sum(self._fit_now()))

    @property
    def environment(self) -> Mapping[str, str]:
        nodes = f"{self._nodes} node{'' if self._nodes == 1 else 's'}"
        where = {"device": " and ".join(sorted(self._devices))} if self._devices else {}
        return {"threads": "1", "ray": f"{self._ray.__version__}, up to {nodes}", **where}

    def load(self, setup: Setup) -> None:
        self._source = None  # let go of the old one first
        self._source = self._ray.put(packed(SetupSource.of(setup, self._data_root)))  # copied once to each node
        self._idle_since = time.monotonic()

    def start(self) -> _Task:
        on_one_node = max(1, min(max(self._fit_now(), default=1), self.slots))
        asked = self._actor.options(  # our scheduler decides who runs again what a lost process had
            num_cpus=1, num_gpus=self._gpus, max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD"
        )
        remote = asked.remote(Start.here(self._device, on_one_node, self._gpus or 1.0), self._source)
        return _Task(remote, remote.load.options(num_returns="streaming").remote())

    def send(self, task: _Task, unit: WorkUnit, _: Callbacks) -> None:
        task.stream = task.remote.run.options(num_returns="streaming").remote(packed(unit))

    def messages(self, tasks: Sequence[_Task]) -> Iterator[tuple[_Task, Message | Loss]]:
        if any(t.ready for t in tasks):
            self._idle_since = time.monotonic()
        elif time.monotonic() - self._idle_since > _LONG:
            text = f"Ray has no process ready after {_LONG:g} s (each needs {self._need}); still waiting"
            yield tasks[0], Notice(text)
        busy = [t for t in tasks if t.stream is not None]
        for stream in self._ray.wait([t.stream for t in busy], num_returns=1, timeout=_LOOK)[0]:
            task = next(t for t in busy if t.stream is stream)
            yield task, self._next(task)

    def end(self, tasks: Sequence[_Task]) -> None:
        for task in tasks:
            self._ray.kill(task.remote, no_restart=True)
        self._looked = -_LOOK  # a node may be gone

    def _next(self, task: _Task) -> Message | Loss:
        """The next message of a process; `Finished` at the end of its stream."""
        errors = self._ray.exceptions
        try:
            message: Message = pickle.loads(self._ray.get(next(task.stream)))
        except StopIteration:
            task.stream = None
            return Finished()
        except errors.RayTaskError as error:
            return Refused(str(error), expected=False)
        except errors.RayError as error:
            if isinstance(error, errors.RayActorError) and "creation task" in str(error):
                last = str(error).strip().splitlines()[-1].strip()
                text = f"a node of the cluster cannot run leakgauge ({last}); install it there, with the same packages"
                return Refused(text, expected=True)
            what = f"processes on Ray were lost over it, the last one: {gist(error)}"
            text = f"{STARTS} processes on Ray in a row were lost before they were ready: {gist(error)}"
            memory = isinstance(error, errors.OutOfMemoryError)
            return Loss(what, LOSSES, LeakgaugeError(text), STARTS, memory=memory)
        if isinstance(message, Ready):
            task.ready = True
            self._devices.add(message.device)
        return message

    def _fit_now(self) -> list[int]:
        """How many processes fit on each node, in use or not; looked up once a second."""
        if time.monotonic() - self._looked >= _LOOK:
            there = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
            self._fit = [fit(has.get("CPU", 0.0), has.get("GPU", 0.0), self._gpus) for has in there]
            self._nodes, self._looked = max(self._nodes, len(there)), time.monotonic()
        return self._fit


def fit(cpus: float, gpus: float, share: float) -> int:
    """How many processes fit on a node: each has a CPU to itself, and its share of a GPU."""
    return min(int(cpus), int(gpus / share + 1e-9)) if share else int(cpus)


# --- what runs on a node -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Start:
    """What a process needs besides the setup itself."""

    device: str  # cpu or cuda: Ray shows a process only the GPU that it may use
    processes: int  # that may run on one node, itself among them
    gpus: float  # share of a GPU that is its own
    version: str
    folder: str  # where the run was started
    data: str | None  # LEAKGAUGE_DATA there, for nodes that do not set it themselves

    @classmethod
    def here(cls, device: str, processes: int, gpus: float) -> Start:
        data = os.environ.get(VARIABLE)
        return cls(device, processes, gpus, leakgauge.__version__, os.getcwd(), data and os.path.abspath(data))


class UnitTask:
    """Lives in a process of its own; `OnRay` makes a Ray actor of it."""

    def __init__(self, start: Start, source: bytes) -> None:
        self._start = start
        self._source = source
        self._runner: UnitRunner | None = None

    def load(self) -> Iterator[bytes]:
        """`Ready` at the end."""
        return streamed(self._load)

    def run(self, unit: bytes) -> Iterator[bytes]:
        """Its parts, each as soon as it is there, with notices and progress between them."""

        def work(send: Callable[[Message], None]) -> None:
            assert self._runner is not None, "load comes first"
            loaded: WorkUnit = pickle.loads(unit)
            for part in self._runner.parts(loaded, callbacks_of(send, _PROGRESS)):
                send(part)

        return streamed(work)

    def _load(self, send: Callable[[Message], None]) -> None:
        ours, theirs = leakgauge.__version__, self._start.version
        if theirs != ours:
            differ = f"a node of the cluster has leakgauge {ours}, the run was started with {theirs}"
            raise LeakgaugeError(f"{differ}; install the same on all nodes")
        with suppress(OSError):  # no such folder here: perhaps nothing in it is needed
            os.chdir(self._start.folder)
            look_here_last(self._start.folder)
        if self._start.data is not None:
            os.environ.setdefault(VARIABLE, self._start.data)
        share_memory(self._start.processes, None, self._start.gpus)
        source: SetupSource = pickle.loads(self._source)
        setup = source.load(self._start.device)
        self._runner = UnitRunner(setup)
        send(Ready(environment(setup.device)["device"]))


def streamed(work: Callable[[Callable[[Message], None]], None]) -> Iterator[bytes]:
    """The messages of `work` while it runs in a thread of its own; a failure of it is the last one."""
    messages: SimpleQueue[Message | None] = SimpleQueue()

    def to_the_end() -> None:
        torch.set_num_threads(1)
        try:
            work(messages.put)
        except BaseException as error:
            messages.put(Refused.of(error))
        messages.put(None)

    threading.Thread(target=to_the_end, daemon=True).start()
    while (message := messages.get()) is not None:
        yield packed(message)
