"""What a worker does: load the setup as its starter did, then run the units it is sent; and its messages meanwhile.

All messages are plain pickles, tensors by value: nothing is shared with a process that can be killed at any moment.
`work` is a process of this machine, at the end of a pipe, with one torch thread; `ray.UnitTask` is one of a cluster.
"""

from __future__ import annotations

import io
import pickle
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from leakgauge import catalog
from leakgauge.engine.memory import share_memory
from leakgauge.errors import LeakgaugeError
from leakgauge.execution.work_units import Callbacks, Part, UnitRunner, WorkUnit
from leakgauge.reading.search_path import look_here_last
from leakgauge.recording.own_update import setup_for
from leakgauge.setup.plan import plan
from leakgauge.setup.setup import Setup
from leakgauge.types import Scenario

_PROGRESS = 0.2  # seconds between two messages of progress


@dataclass(frozen=True)
class SetupSource:
    """All that a process needs to load the setup that another one has; pickles, with tensors by value."""

    scenario: Scenario
    data_root: Path | None
    key: str  # of the setup: a process that gets another one has loaded something else
    trained: Mapping[str, Tensor] | None  # parameters of a model that was trained for this, which is not done twice

    @classmethod
    def of(cls, setup: Setup, data_root: Path | None) -> SetupSource:
        state = None
        if setup.scenario.training.rounds > 0 and setup.victims.shared is None:
            held = {name: t.detach().cpu() for name, t in setup.model.state_dict().items()}
            state = {name: t.float() if t.is_floating_point() else t for name, t in held.items()}
        return cls(setup.scenario, data_root, setup.key, state)

    def load(self, device: str) -> Setup:
        """The setup, on a device of this process."""
        plan(self.scenario)  # own attacks and defenses have to be imported before a unit that holds one arrives
        setup = setup_for(self.scenario, self.data_root, device, trained=self.trained, checked=False)
        if setup.key != self.key:
            raise LeakgaugeError(
                "a worker process loaded other samples or weights than the one that started it; own code must give the "
                "same each time (seed what it draws), or leave --workers and --on out"
            )
        return setup


@dataclass(frozen=True)
class Ready:
    """The setup is loaded."""

    device: str = ""  # its name, where it is not a device of the starter


@dataclass(frozen=True)
class Progress:
    share: float  # of the unit that was sent last


@dataclass(frozen=True)
class Notice:
    line: str


@dataclass(frozen=True)
class Finished:
    """All parts of the unit were sent."""


@dataclass(frozen=True)
class Refused:
    """An error that another worker would raise as well."""

    text: str
    expected: bool  # ours, raised on purpose: one line is enough

    @classmethod
    def of(cls, error: BaseException) -> Refused:
        if isinstance(error, LeakgaugeError):
            return cls(str(error), expected=True)
        return cls("".join(traceback.format_exception(error)), expected=False)


Message = Ready | Progress | Notice | Part | Finished | Refused


def work(pipe: Connection, source: bytes, device: str, processes: int, memory: int | None) -> None:
    """All that a worker process does, from loading to its last unit."""
    torch.set_num_threads(1)
    share_memory(processes, memory)
    try:
        look_here_last()  # it may name code of the user's
        loaded: SetupSource = pickle.loads(source)
        runner = UnitRunner(loaded.load(device))
        send(pipe, Ready())
        while (unit := receive(pipe)) is not None:
            for part in runner.parts(unit, callbacks_of(lambda message: send(pipe, message), _PROGRESS)):
                send(pipe, part)
            send(pipe, Finished())
    except (EOFError, BrokenPipeError):  # our starter is gone
        return
    except Exception as error:
        send(pipe, Refused.of(error))


def callbacks_of(send: Callable[[Message], None], every: float) -> Callbacks:
    """Callbacks that become messages; progress once in so many seconds."""
    last = -every

    def progress(_: WorkUnit, share: float) -> None:
        nonlocal last
        if time.monotonic() - last > every:
            last = time.monotonic()
            send(Progress(share))

    return Callbacks(progress, lambda line: send(Notice(line)))


def send(pipe: Connection, message: Message | WorkUnit | None) -> None:
    pipe.send_bytes(packed(message))


def receive(pipe: Connection) -> Any:
    return pickle.loads(pipe.recv_bytes())


def packed(thing: Any) -> bytes:
    """A pickle that a process can read which has loaded the same `Setup`, also of attacks in the user's own files."""
    buffer = io.BytesIO()
    _Pickler(buffer).dump(thing)
    return buffer.getvalue()


class _Pickler(pickle.Pickler):
    """A file of the user's own is executed whenever it is named: its classes are looked up in that file by name."""

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, type) and thing.__module__.startswith(catalog.OWN):
            return _own_class, (thing.__module__, thing.__qualname__)
        return NotImplemented


def _own_class(module: str, name: str) -> Any:
    return getattr(sys.modules[module], name)
