"""Who runs the work units of a command: this process, processes of this machine, or a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from leakgauge.cli.options import Places
from leakgauge.errors import BadInput
from leakgauge.execution.local import Workers, memory_from_text
from leakgauge.execution.ray import OnRay
from leakgauge.execution.ray_cluster import connected
from leakgauge.execution.scheduler import Transport


@contextmanager
def executing(given: Places) -> Iterator[Transport | None]:
    """A transport for as long as this lasts; None for this process."""
    on, workers, memory, share = given.on, given.workers, given.worker_memory, given.gpus_per_task
    if share is not None and on is None:
        raise BadInput("--gpus-per-task", allowed="used with --on ray", got="no --on", do="add --on ray")
    if memory is not None and (on is not None or workers is None):
        got = "--on" if on is not None else "no --workers"
        raise BadInput("--worker-memory", allowed="used with --workers alone", got=got, do="see 'audit --help'")
    if workers is not None and workers < 1:
        raise BadInput("--workers", allowed="a whole number from 1", got=workers, do="for example --workers 4")
    place: dict[str, Any] = {"device": given.device, "data_root": given.data_root}
    if on is not None:
        with connected(_address(on)) as ray:
            yield OnRay(ray, at_most=workers, gpus=1.0 if share is None else share, **place)
    elif workers is not None:
        yield Workers(workers, memory=None if memory is None else memory_from_text(memory), **place)
    else:
        yield None


def _address(on: str) -> str | None:
    """`ray` -> None: one of its own; `ray=auto`, `ray=HOST:PORT` -> what stands behind."""
    name, sep, address = on.partition("=")
    if name != "ray" or (sep and not address):
        raise BadInput("--on", allowed="ray, ray=auto or ray=HOST:PORT", got=repr(on), do="for example --on ray")
    return address or None
