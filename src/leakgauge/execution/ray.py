"""Workers on a Ray cluster, while nodes come and go.

    leakgauge audit --on ray            a cluster of this machine alone, started and ended with the run
    leakgauge audit --on ray=auto       the one that runs here, or ray=HOST:PORT

As many processes as the cluster has room for, each with one CPU and one torch thread or its share of a GPU.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leakgauge.errors import BadInput, LeakgaugeError
from leakgauge.execution.ray_cluster import Lost, Need, RayCluster
from leakgauge.execution.ray_task import Start
from leakgauge.execution.scheduler import STARTS, Loss
from leakgauge.execution.work_units import Callbacks, WorkUnit
from leakgauge.execution.worker import Finished, Message, Notice, Ready, SetupSource, packed
from leakgauge.setup.setup import Setup, pick_device

LOSSES = 10  # of processes over one unit, before any of its trials is done
_LOOK = 1.0  # seconds between looks at how many nodes there are
_LONG = 60.0  # seconds without any process: time to say why nothing happens


@dataclass
class _Task:
    """A process of the cluster; it says something in `stream`, or waits for work."""

    remote: Any
    stream: Any
    ready: bool = False


class OnRay:
    """A `Transport` to a cluster that somebody connected to; see `ray_cluster.connected`.

    `at_most` processes are asked for even if there is no room for them yet, on clusters that grow on demand.
    """

    def __init__(
        self,
        cluster: RayCluster,
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
        self._cluster = cluster
        self._device = where.type
        self._need = Need(gpus if where.type == "cuda" else 0.0)
        self._data_root = data_root
        self._at_most = at_most
        self._source: Any = None
        self._room, self._looked = 0, -_LOOK
        self._idle_since = 0.0
        self._devices: set[str] = set()
        self._nodes = 0  # the most there were
        if not self._room_now() and at_most is None:
            raise BadInput(
                "--on ray",
                allowed=f"a cluster of which a node has {self._need}",
                got="none such",
                do="add one, or say with --workers how many tasks to wait for",
            )

    @property
    def slots(self) -> int:
        """As many processes as fit, or as were asked for; changes as nodes come and go."""
        return max(1, self._at_most or self._room_now())

    @property
    def environment(self) -> Mapping[str, str]:
        nodes = f"{self._nodes} node" + ("" if self._nodes == 1 else "s")
        where = {"device": " and ".join(sorted(self._devices))} if self._devices else {}
        return {"threads": "1", "ray": f"{self._cluster.version}, up to {nodes}", **where}

    def load(self, setup: Setup) -> None:
        self._source = None  # let go of the old one first
        self._source = self._cluster.shared(packed(SetupSource.of(setup, self._data_root)))
        self._idle_since = time.monotonic()

    def start(self) -> _Task:
        on_one_node = max((self._need.times_on(node) for node in self._cluster.nodes()), default=1)
        start = Start.here(self._device, max(1, min(on_one_node, self.slots)), self._need.gpus or 1.0)
        remote = self._cluster.hire(self._need, start, self._source)
        return _Task(remote, self._cluster.load(remote))

    def send(self, task: _Task, unit: WorkUnit, _: Callbacks) -> None:
        task.stream = self._cluster.run(task.remote, unit)

    def messages(self, tasks: Sequence[_Task]) -> Iterator[tuple[_Task, Message | Loss]]:
        if any(t.ready for t in tasks):
            self._idle_since = time.monotonic()
        elif time.monotonic() - self._idle_since > _LONG:
            text = f"Ray has no process ready after {_LONG:g} s (each needs {self._need}); still waiting"
            yield tasks[0], Notice(text)
        busy = [t for t in tasks if t.stream is not None]
        for stream in self._cluster.ready([t.stream for t in busy], _LOOK):
            task = next(t for t in busy if t.stream is stream)
            yield task, self._next(task)

    def end(self, tasks: Sequence[_Task]) -> None:
        for task in tasks:
            self._cluster.dismiss(task.remote)
        self._looked = -_LOOK  # a node may be gone

    def _next(self, task: _Task) -> Message | Loss:
        try:
            message = self._cluster.receive(task.stream)
        except Lost as error:
            what = f"processes on Ray were lost over it, the last one: {error}"
            early = LeakgaugeError(f"{STARTS} processes on Ray in a row were lost before they were ready: {error}")
            return Loss(what, LOSSES, early, STARTS, memory=error.memory)
        if isinstance(message, Ready):
            task.ready = True
            self._devices.add(message.device)
        elif isinstance(message, Finished):
            task.stream = None
        return message

    def _room_now(self) -> int:
        if time.monotonic() - self._looked >= _LOOK:
            nodes = self._cluster.nodes()
            self._room, self._looked = sum(map(self._need.times_on, nodes)), time.monotonic()
            self._nodes = max(self._nodes, len(nodes))
        return self._room
