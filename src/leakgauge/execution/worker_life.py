"""How long a worker process lives: as long as its starter, and while it holds no more memory than it may.

Nothing heavy is imported here: a worker whose starter is killed while it loads the libraries ends at once, too.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from importlib import import_module
from multiprocessing.connection import Connection

OVER_MEMORY = 77  # exit code of a worker that needed more than it may
_LOOK = 0.1  # seconds between looks at memory and starter


def begin(starter: int, pipe: Connection, source: bytes, device: str, processes: int, memory: int | None) -> None:
    """The whole life of a worker that this process started."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all processes; our starter decides
    threading.Thread(target=_watch, args=(starter, memory), daemon=True).start()
    import_module("leakgauge.execution.worker").work(pipe, source, device, processes, memory)


def _watch(starter: int, memory: int | None) -> None:
    """Ends the process if its starter is gone or it holds too much; there is nothing to clean up."""
    while True:
        if os.getppid() != starter:
            os._exit(1)
        if memory is not None and resident_bytes() > memory:
            os._exit(OVER_MEMORY)
        time.sleep(_LOOK)


def resident_bytes() -> int:
    """What this process holds in memory now; where the system does not show that, the most it ever held."""
    try:
        with open("/proc/self/statm", encoding="ascii") as numbers:
            return int(numbers.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource  # not on every system, as little as the file above

        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
