"""How to connect to a Ray cluster.

    with connected("auto") as ray:  # None starts one on this machine, for as long as this lasts
        report, pictures = run_audit(scenario, executor=OnRay(ray))

Nothing is reported to Ray's makers, there is no dashboard, and a cluster that was started here accepts only requests
with its own secret token. No other module imports Ray, so that all can be tested without it.
"""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

from leakgauge.errors import BadInput, LeakgaugeError, MissingExtra
from leakgauge.execution.quiet_ray import NO_STATISTICS, quiet_ray
from leakgauge.reading.search_path import safe_children

OBJECT_STORE = 200_000_000  # bytes of a local one: units and their results pass through, nothing stays
_PATIENCE = 60.0  # seconds for a cluster to answer, on a machine that may be busy
_SETTINGS = NO_STATISTICS | {
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # nodes have their own environment
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_raylet_start_wait_time_s": "120",
    "RAY_DEDUP_LOGS_SKIP_REGEX": "^",  # it would print to stdout, which is ours
}


@contextmanager
def connected(address: str | None = None) -> Iterator[ModuleType]:
    """Ray, connected to the cluster at `HOST:PORT`, to that of this machine (`auto`), or to one that is started here.

    Where this process is connected already, that cluster is taken. Only what was started here is ended here.
    """
    ray = ray_module(own=address is None)
    if ray.is_initialized():
        yield ray
        return
    with ExitStack() as afterwards:  # in the opposite order
        how: dict[str, Any] = {"address": address}
        if address is None:  # Ray's own files may hold samples: they are ours alone; its sockets want a short path
            short = "/tmp" if os.path.isdir("/tmp") else None
            scratch = TemporaryDirectory(prefix="leakgauge-", dir=short, ignore_cleanup_errors=True)
            how = {"address": "local", "_temp_dir": afterwards.enter_context(scratch)}
            how |= {"include_dashboard": False, "object_store_memory": OBJECT_STORE}
        else:
            _refuse_unreachable(address)
        afterwards.callback(ray.shutdown)
        _init(ray, **how)
        yield ray


def ray_module(own: bool = False) -> ModuleType:
    """Ray, set to be quiet before it is imported; with `own`, a cluster that we start will ask for a token.

    Its ports are open to the network. Where it was imported before, or the user has decided on tokens, that stays.
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
            raise LeakgaugeError(f"Ray could not be started on this machine: {gist(error)}") from error
        raise _unreachable(how["address"], gist(error)) from error


def _refuse_unreachable(address: str) -> None:
    """Ray itself waits for many minutes for a cluster that is not there; its status command can be stopped."""
    if address.startswith("ray://"):
        do = "run this on a node of that cluster"
        raise BadInput("--on ray=ADDRESS", allowed="auto or HOST:PORT", got=address, do=do)
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
        lines = asked.stderr.strip().splitlines()
        raise _unreachable(address, lines[-1].split(". ")[0] if lines else f"exit code {asked.returncode}")


def _unreachable(address: str, why: str) -> BadInput:
    do = "start one with 'ray start --head', or leave the address out"
    return BadInput("--on ray", allowed="a running cluster", got=f"{address}: {why}", do=do)


def gist(error: Exception) -> str:
    """Of Ray's messages, which are paragraphs, the sentence with the cause."""
    text = " ".join(str(error).split())
    _, known, cause = text.partition("The actor is dead because ")
    return (cause if known else text).split(". ")[0].strip(" .")[:200] or type(error).__name__
