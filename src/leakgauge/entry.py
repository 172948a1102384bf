"""Where the program begins: what cannot even be loaded is said in one line, too."""

from __future__ import annotations

import sys
from importlib import import_module

_LEAST = 2**30  # bytes of address space; with less the libraries abort without a word of ours


def main() -> int:
    """Run the command line of this process; returns the exit code."""
    if (limit := _address_space()) is not None and limit < _LEAST:
        sys.stderr.write(
            f"leakgauge: address space must be 1 GiB or more, got {limit / 2**30:.1f} GiB; raise ulimit -v\n"
        )
        return 2
    try:
        run = import_module("leakgauge.cli.main").main
    except (ImportError, MemoryError, OSError, RuntimeError) as error:
        if "--debug" in sys.argv:
            raise
        what = " ".join(f"{type(error).__name__}: {error}".split())[:400]
        sys.stderr.write(
            f"leakgauge: it must be loadable, got {what}; install it anew, or give the process more memory\n"
        )
        return 2
    return int(run())


def _address_space() -> int | None:
    """The limit of this process; None where there is none."""
    try:
        import resource
    except ImportError:  # not a Unix
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit
