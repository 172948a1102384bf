"""A Ray cluster: how to come to it, how much room it has, and what its processes say.

    with connected("auto") as cluster:  # None starts one on this machine, for as long as this lasts
        report, pictures = run_audit(scenario, executor=OnRay(cluster))

Nothing of it is reported to Ray's makers, there is no dashboard, and a cluster that was started here takes orders only
with a token that nobody else has. All other modules are free of Ray, so that they can be tested without it.
"""

from __future__ import annotations

import os
import pickle
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from leakgauge.errors import BadInput, LeakgaugeError, MissingExtra
from leakgauge.execution.quiet_ray import NO_STATISTICS, quiet_ray
from leakgauge.execution.ray_task import Start, UnitTask
from leakgauge.execution.work_units import WorkUnit
from leakgauge.execution.worker import Finished, Message, Refused, packed
from leakgauge.reading.search_path import safe_children

OBJECT_STORE = 200_000_000  # bytes of a local one: units and their results pass through, nothing stays
_PATIENCE = 60.0  # seconds for a cluster to answer, on a machine that may be busy
_SETTINGS = NO_STATISTICS | {
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # nodes have their own environment
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_raylet_start_wait_time_s": "120",
    "RAY_DEDUP_LOGS_SKIP_REGEX": "^",  # it would print to stdout, which is ours
}


class Lost(Exception):
    """A process of the cluster is gone, or what it said; `memory`: because its node was running out of it."""

    def __init__(self, why: str, *, memory: bool = False) -> None:
        super().__init__(why)
        self.memory = memory


@dataclass(frozen=True)
class Node:
    """What a machine of the cluster has in all, in use or not."""

    cpus: float
    gpus: float


@dataclass(frozen=True)
class Need:
    """What one process asks for."""

    gpus: float = 0.0  # a share of one, or none

    def times_on(self, node: Node) -> int:
        """How many fit on a node; each has a CPU to itself."""
        fit = int(node.cpus)
        return fit if not self.gpus else min(fit, int(node.gpus / self.gpus + 1e-9))

    def __str__(self) -> str:
        return f"1 CPU and {self.gpus:g} GPU" if self.gpus else "1 CPU"


class RayCluster:
    """A cluster that this process is connected to."""

    def __init__(self, ray: ModuleType) -> None:
        self._ray = ray
        self._task = ray.remote(UnitTask)
        self.version: str = ray.__version__

    def nodes(self) -> list[Node]:
        found = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        return [Node(has.get("CPU", 0.0), has.get("GPU", 0.0)) for has in found]

    def shared(self, source: bytes) -> Any:
        """Kept once, and copied to each node that needs it."""
        return self._ray.put(source)

    def hire(self, need: Need, start: Start, source: Any) -> Any:
        """A `UnitTask` in a process of its own, as soon as there is room. Who runs again what it lost, we decide."""
        asked = self._task.options(
            num_cpus=1, num_gpus=need.gpus, max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD"
        )
        return asked.remote(start, source)

    def load(self, task: Any) -> Any:
        return task.load.options(num_returns="streaming").remote()

    def run(self, task: Any, unit: WorkUnit) -> Any:
        return task.run.options(num_returns="streaming").remote(packed(unit))

    def dismiss(self, task: Any) -> None:
        """It ends at once, whatever it is at."""
        self._ray.kill(task, no_restart=True)

    def ready(self, streams: Sequence[Any], seconds: float) -> list[Any]:
        """Those of them that have something to say."""
        found: list[Any] = self._ray.wait(list(streams), num_returns=1, timeout=seconds)[0]
        return found

    def receive(self, stream: Any) -> Message:
        """The next message; `Finished` at the end. Raises `Lost`."""
        errors = self._ray.exceptions
        try:
            message: Message = pickle.loads(self._ray.get(next(stream)))
        except StopIteration:
            return Finished()
        except errors.RayTaskError as error:
            return Refused(str(error), expected=False)
        except errors.RayActorError as error:
            if "creation task" in str(error):
                return Refused(_cannot_start(error), expected=True)
            raise Lost(_gist(error)) from error
        except errors.RayError as error:
            raise Lost(_gist(error), memory=isinstance(error, errors.OutOfMemoryError)) from error
        return message


@contextmanager
def connected(address: str | None = None) -> Iterator[RayCluster]:
    """The cluster at `HOST:PORT`, the one that runs on this machine (`auto`), or one that is started here.

    Where this process is connected already, that cluster is taken. Only what was started here is ended here.
    """
    ray = ray_module(own=address is None)
    if ray.is_initialized():
        yield RayCluster(ray)
        return
    with ExitStack() as afterwards:  # in the opposite order
        how: dict[str, Any] = {"address": address}
        if address is None:
            scratch = afterwards.enter_context(_scratch())
            how = {
                "address": "local",
                "_temp_dir": scratch,
                "include_dashboard": False,
                "object_store_memory": OBJECT_STORE,
            }
        else:
            _refuse_unreachable(address)
        afterwards.callback(ray.shutdown)
        _init(ray, **how)
        yield RayCluster(ray)


def ray_module(own: bool = False) -> ModuleType:
    """Ray, told to be quiet before it is imported; and for a cluster of its own to ask for a token.

    Its ports are open to the network. Where it was imported before, or somebody has decided on tokens, that stays.
    """
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    if own and "ray" not in sys.modules and "RAY_AUTH_MODE" not in os.environ:
        os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import ray
            import ray.exceptions
    except ImportError as error:
        raise MissingExtra("--on ray needs the package ray; run: pip install 'leakgauge[ray]'") from error
    module: ModuleType = ray
    return module


def _init(ray: ModuleType, **how: Any) -> None:
    try:
        with warnings.catch_warnings(), safe_children(), quiet_ray():
            warnings.simplefilter("ignore")
            ray.init(log_to_driver=False, logging_level="ERROR", **how)
    except Exception as error:  # it raises all kinds, bare ones among them
        if how["address"] == "local":
            raise LeakgaugeError(f"Ray could not be started on this machine: {_gist(error)}") from error
        raise _unreachable(how["address"], _gist(error)) from error


def _refuse_unreachable(address: str) -> None:
    """Ray itself waits for many minutes for a cluster that is not there; its status command can be stopped."""
    if address.startswith("ray://"):
        raise BadInput(
            "--on ray=ADDRESS", allowed="auto or HOST:PORT", got=address, do="run this on a node of that cluster"
        )
    host, _, port = address.rpartition(":")
    if host and port.isdigit():
        try:
            socket.create_connection((host, int(port)), _PATIENCE / 6).close()
        except (OSError, OverflowError) as error:
            raise _unreachable(address, str(error)) from error
    command = [sys.executable, "-P", "-m", "ray.scripts.scripts", "status", "--address", address]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    except subprocess.TimeoutExpired as error:
        raise _unreachable(address, f"no answer within {_PATIENCE:g} s") from error
    if asked.returncode:
        said = asked.stderr.strip().splitlines()
        raise _unreachable(address, said[-1].split(". ")[0] if said else f"exit code {asked.returncode}")


def _unreachable(address: str, why: str) -> BadInput:
    return BadInput(
        "--on ray",
        allowed="a running cluster",
        got=f"{address}: {why}",
        do="start one with 'ray start --head', or leave the address out",
    )


@contextmanager
def _scratch() -> Iterator[str]:
    """For Ray's own files, some of which may hold samples: ours alone, gone afterwards. Its sockets want it short."""
    folder = tempfile.mkdtemp(prefix="leakgauge-", dir="/tmp" if os.path.isdir("/tmp") else None)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _cannot_start(error: Exception) -> str:
    last = str(error).strip().splitlines()[-1]
    return f"a node of the cluster cannot run leakgauge ({last.strip()}); install it there, with the same packages"


def _gist(error: Exception) -> str:
    """Ray's messages are paragraphs; the sentence that says why."""
    text = " ".join(str(error).split())
    _, known, cause = text.partition("The actor is dead because ")
    return (cause if known else text).split(". ")[0].strip(" .")[:200] or type(error).__name__
