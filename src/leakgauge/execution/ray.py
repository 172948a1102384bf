"""Runs the chunks of an audit on a Ray cluster, while nodes come and go.

    leakgauge audit --on ray            a cluster of this machine alone, started and ended with the run
    leakgauge audit --on ray=auto       the one that runs here, or ray=HOST:PORT

As many processes as the cluster has room for, each with one CPU and one torch thread or its share of a GPU. Each loads
the stage once. What a process had not finished when it or its node was lost is run elsewhere; after `LOSSES` losses
over one chunk its trials stand as failed, with the reason. Everything ends with `close`, whatever it is at.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from leakgauge.errors import BadInput, LeakgaugeError
from leakgauge.execution.ray_cluster import Lost, Need, RayCluster
from leakgauge.execution.ray_task import Loaded, Start
from leakgauge.execution.work_units import Part, Told, WorkUnit, failed_part
from leakgauge.execution.worker import Finished, Notice, Progress, Refused, SetupSource, packed
from leakgauge.setup.setup import Setup, pick_device

LOSSES = 10  # of processes over one chunk, before any of its trials is done
STARTS = 50  # of processes in a row that are lost before they are ready
_LOOK = 1.0  # seconds between looks at how many nodes there are
_LONG = 60.0  # seconds without any process: time to say why nothing happens


@dataclass
class _Attempt:
    """A chunk on its way, less what of it came back."""

    unit: WorkUnit
    losses: int = 0


@dataclass
class _Task:
    """A process of the cluster; it says something in `stream`, or waits for work."""

    remote: Any
    stream: Any
    ready: bool = False
    attempt: _Attempt | None = None


class OnRay:
    """An `Executor` on a cluster that somebody connected to; see `ray_cluster.connected`.

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
        self._tasks: list[_Task] = []
        self._source: Any = None
        self._key = ""
        self._lost_early = 0
        self._room, self._looked = 0, -_LOOK
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
        """What is true of where it ran, and not of the process that asked for it."""
        nodes = f"{self._nodes} node" + ("" if self._nodes == 1 else "s")
        where = {"device": " and ".join(sorted(self._devices))} if self._devices else {}
        return {"threads": "1", "ray": f"{self._cluster.version}, up to {nodes}", **where}

    def run(self, setup: Setup, units: Iterator[WorkUnit], told: Told) -> Iterator[tuple[WorkUnit, Part]]:
        """See `leakgauge.execution.work_units`."""
        if self._key != setup.key:
            self.close()
            self._source = self._cluster.shared(packed(SetupSource.of(setup, self._data_root)))
            self._key = setup.key
        waiting: deque[_Attempt] = deque()
        more, patience = True, time.monotonic() + _LONG
        while True:
            while more and len(waiting) < self.slots - sum(t.attempt is not None for t in self._tasks):
                unit = next(units, None)
                more = unit is not None
                if unit is not None:
                    waiting.append(_Attempt(unit))
            self._hand_out(waiting)
            if not waiting and not any(t.attempt for t in self._tasks):
                return
            busy = [t for t in self._tasks if t.stream is not None]
            for stream in self._cluster.heard([t.stream for t in busy], _LOOK):
                yield from self._hear(next(t for t in busy if t.stream is stream), waiting, setup, told)
            if time.monotonic() > patience and not any(t.ready for t in self._tasks):
                told.notice(f"Ray has no process ready after {_LONG:g} s (each needs {self._need}); still waiting")

    def close(self) -> None:
        """All processes end at once; what they were at is lost, and nothing else."""
        for task in self._tasks:
            self._cluster.dismiss(task.remote)
        self._tasks.clear()
        self._source, self._key = None, ""

    def _room_now(self) -> int:
        if time.monotonic() - self._looked >= _LOOK:
            nodes = self._cluster.nodes()
            self._room, self._looked = sum(map(self._need.times_on, nodes)), time.monotonic()
            self._nodes = max(self._nodes, len(nodes))
        return self._room

    def _hand_out(self, waiting: deque[_Attempt]) -> None:
        for task in self._tasks:
            if waiting and task.ready and task.attempt is None:
                task.attempt = waiting.popleft()
                task.stream = self._cluster.run(task.remote, task.attempt.unit)
        starting = sum(not t.ready for t in self._tasks)
        for _ in range(min(len(waiting) - starting, self.slots - len(self._tasks))):
            self._start()

    def _start(self) -> None:
        on_one_node = max((self._need.times_on(node) for node in self._cluster.nodes()), default=1)
        start = Start.here(self._device, max(1, min(on_one_node, self.slots)), self._need.gpus or 1.0)
        remote = self._cluster.hire(self._need, start, self._source)
        self._tasks.append(_Task(remote, self._cluster.load(remote)))

    def _hear(self, task: _Task, waiting: deque[_Attempt], setup: Setup, told: Told) -> Iterator[tuple[WorkUnit, Part]]:
        """One message of a process, or its loss."""
        try:
            message = self._cluster.receive(task.stream)
        except Lost as error:
            yield from self._bury(task, error, waiting, setup)
            return
        attempt = task.attempt
        if isinstance(message, Loaded):
            task.ready, self._lost_early = True, 0
            self._devices.add(message.device)
        elif isinstance(message, Refused):
            raise LeakgaugeError(message.text) if message.expected else RuntimeError(f"on Ray:\n{message.text}")
        elif isinstance(message, Notice):
            told.notice(message.line)
        elif isinstance(message, Finished):
            task.attempt, task.stream = None, None
        elif isinstance(message, Progress) and attempt is not None:
            told.progress(attempt.unit, message.share)
        elif isinstance(message, Part) and attempt is not None:
            whole = attempt.unit
            attempt.unit, attempt.losses = whole.without(t.finding.trial for t in message.trials), 0
            yield whole, message

    def _bury(self, task: _Task, why: Lost, waiting: deque[_Attempt], setup: Setup) -> Iterator[tuple[WorkUnit, Part]]:
        """It may only be out of reach: it is ended all the same, so that no trial comes back twice."""
        self._tasks.remove(task)
        self._cluster.dismiss(task.remote)
        self._looked = -_LOOK  # a node may be gone
        attempt = task.attempt
        if not task.ready:
            self._lost_early += 1
            if self._lost_early >= STARTS:
                raise LeakgaugeError(f"{STARTS} processes on Ray in a row were lost before they were ready: {why}")
        if attempt is None or not attempt.unit.trials:
            return
        attempt.losses += 1
        if attempt.losses >= LOSSES:
            text = f"given up: {LOSSES} processes on Ray were lost over it, the last one: {why}"
            yield attempt.unit, failed_part(setup, attempt.unit, text)
            return
        side_by_side = attempt.unit.at_once or len(attempt.unit.trials)
        if why.memory and side_by_side > 1:
            attempt.unit = replace(attempt.unit, at_once=side_by_side // 2)
        waiting.append(attempt)
