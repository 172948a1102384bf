"""One process at a time: who holds the lock on a path may work on it; the system frees it if that process dies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from leakgauge.files import cannot_write

try:
    import fcntl
except ImportError:  # no such locks on this system: two processes may do the same work twice, nothing worse
    fcntl = None  # type: ignore[assignment]


@contextmanager
def claimed(path: Path, *, wait: bool) -> Iterator[bool]:
    """Hold `path` inside; False, at once, if another process holds it and we are not to `wait`.

    The lock is a neighbour `.NAME.lock`, gone afterwards. Look again whether the work is done once it is yours.
    """
    if fcntl is None:
        yield True
        return
    lock = path.with_name(f".{path.name}.lock")
    try:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise cannot_write(lock, error) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        try:
            yield True
        finally:
            lock.unlink(missing_ok=True)
    finally:
        os.close(handle)
