"""One work unit after another, in this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from leakgauge.execution.work_units import Callbacks, Part, UnitRunner, WorkUnit
from leakgauge.execution.worker import Finished, Message, Ready
from leakgauge.setup.setup import Setup


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
