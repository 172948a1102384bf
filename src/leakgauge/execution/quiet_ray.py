"""Ray that contacts no address but those of its own cluster, whoever starts it.

    with quiet_ray():
        run_simulation(...)  # Flower starts Ray in here

No setting covers all of it: even without statistics, the process that would send them asks three clouds whether this
machine is theirs. It does not ask if its home folder holds a description of the cluster, so it gets such a folder.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

NO_STATISTICS = {"RAY_USAGE_STATS_ENABLED": "0"}
_ASKS, _DESCRIPTION = "--modules-to-load=UsageStatsHead", "ray_bootstrap_config.yaml"  # names of Ray's own


@contextmanager
def quiet_ray() -> Iterator[None]:
    """Ray that is started inside, without its dashboard, is quiet; statistics that were asked for are still sent."""
    for name, value in NO_STATISTICS.items():
        os.environ.setdefault(name, value)
    try:
        from ray._private import services

        start = services.start_ray_process
    except (ImportError, AttributeError):  # no Ray, or a version that keeps it elsewhere
        yield
        return

    def started(command: list[str], *rest: Any, **more: Any) -> Any:
        if _ASKS in command:
            more["env_updates"] = {**(more.get("env_updates") or {}), "HOME": _home_of_no_cloud().name}
        return start(command, *rest, **more)

    services.start_ray_process = started
    try:
        yield
    finally:
        services.start_ray_process = start


@cache
def _home_of_no_cloud() -> tempfile.TemporaryDirectory[str]:
    """A home folder with an empty description of a cluster; it is there as long as this process."""
    home = tempfile.TemporaryDirectory(prefix="leakgauge-ray-")
    (Path(home.name) / _DESCRIPTION).write_text("{}\n", encoding="ascii")
    return home
