"""Where the program begins: one line also says what cannot even be loaded."""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module

_LEAST = 2**30  # bytes of address space; with less the libraries abort without a message of ours
_OF_MEMORY = (signal.SIGSEGV, signal.SIGABRT, getattr(signal, "SIGBUS", None))  # a library that gets no memory ends so
_TOO_SMALL = (
    "address space must be enough for this, got {:.1f} GiB, with which a library ended by {}; "
    "raise ulimit -v, or take a smaller --batch-size or model"
)


def main() -> int:
    """Run the command line of this process; returns the exit code."""
    limit = _address_space()
    if limit is None or not hasattr(os, "fork"):
        return _run()
    if limit < _LEAST:
        return _refused(f"address space must be 1 GiB or more, got {limit / 2**30:.1f} GiB; raise ulimit -v")
    return _watched(limit)


def _run() -> int:
    try:
        run = import_module("leakgauge.cli.main").main
    except (ImportError, MemoryError, OSError, RuntimeError) as error:
        if "--debug" in sys.argv:
            raise
        what = " ".join(f"{type(error).__name__}: {error}".split())[:400]
        return _refused(f"it must be loadable, got {what}; install it again, or give the process more memory")
    try:
        return int(run())
    except MemoryError:  # also while another message about it was written
        return _refused("memory must be enough for this, got none; give the process more")


def _watched(limit: int) -> int:
    """The same in a process of its own: libraries that get no memory may end it without a word."""
    child = os.fork()
    if child == 0:
        if sys.platform == "linux":  # a kill of the first process ends this one, too
            import ctypes

            set_death_signal = 1
            ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)
        return _run()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to both
    signal.signal(signal.SIGTERM, lambda number, _: os.kill(child, number))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code >= 0:
        return code
    if -code in _OF_MEMORY:
        return _refused(_TOO_SMALL.format(limit / 2**30, signal.Signals(-code).name))
    return 128 - code  # as a shell does


def _refused(why: str) -> int:
    sys.stderr.write(f"leakgauge: {why}\n")
    return 2


def _address_space() -> int | None:
    """The limit of this process; None where there is none."""
    try:
        import resource
    except ImportError:  # not a Unix
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit
