"""Where modules are looked for. An auditor is run in other people's folders: those come last, or not at all.

Python puts the working folder first for `python -m` and for the processes it spawns, so that a file named `random.py`
would be run in place of the library's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

SAFE = "PYTHONSAFEPATH"  # Python's own switch, for processes that are started from here


def look_here_last(folder: str | None = None) -> None:
    """For code that the user named: what it imports may lie beside it, but replaces nothing that is installed."""
    folder = os.getcwd() if folder is None else folder
    if folder not in sys.path:
        sys.path.append(folder)


@contextmanager
def safe_children() -> Iterator[None]:
    """Processes that are started meanwhile do not look in the working folder first."""
    before = os.environ.get(SAFE)
    os.environ[SAFE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SAFE]
        else:
            os.environ[SAFE] = before
