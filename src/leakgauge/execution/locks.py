"""One process at a time: who holds the lock on a path may work on it; the system frees it if that process dies."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from leakgauge.reading.files import HAS_LOCKS, cannot_write, hold, is_file_at

_LOOK = 0.05  # seconds between tries
_LONG = 5.0  # seconds of waiting until the first notice; until each later one it doubles
_NOTE = 200  # bytes that a holder writes of itself, at most


@contextmanager
def claimed(path: Path, *, wait: bool, notice: Callable[[str], None] = lambda _: None) -> Iterator[bool]:
    """Hold `path` inside; False, at once, if another process holds it and we are not to `wait`.

    The lock is a neighbour `.NAME.lock`, gone afterwards. Look again whether the work is done once it is yours. After a
    long wait `notice` gets a line on who holds it, and for how long.
    """
    if not HAS_LOCKS:  # two processes may do the same work twice, nothing worse
        yield True
        return
    lock = path.with_name(f".{path.name}.lock")
    handle = _taken(lock, wait, notice)
    try:
        yield handle is not None
    finally:
        if handle is not None:
            with suppress(OSError):  # what stays is free all the same: nobody holds it
                lock.unlink(missing_ok=True)
            with suppress(OSError):
                os.close(handle)


def _taken(lock: Path, wait: bool, notice: Callable[[str], None]) -> int | None:
    """The open lock file, ours; None if another process has it and we are not to wait."""
    began, next_notice = time.monotonic(), _LONG
    while True:
        ours = False
        try:
            handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
        except OSError as error:
            raise cannot_write(lock, error) from error
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise OSError(errno.EINVAL, "it is no regular file")
            if hold(handle):
                if ours := is_file_at(lock, handle):
                    with suppress(OSError):  # on a full disk who waits learns less, no more
                        os.truncate(handle, 0)
                        os.write(handle, f"{os.getpid()} {time.time():.0f}".encode())
                    return handle
                continue  # its holder removed it before we had it: another may hold the one that is there now
            if not wait:
                return None
            waited = time.monotonic() - began
            if waited >= next_notice:
                notice(f"waiting for {lock.name}, which {_holder(handle)} holds; {waited:.0f} s so far")
                next_notice *= 2
        except OSError as error:
            raise cannot_write(lock, error) from error
        finally:
            if not ours:
                os.close(handle)
        time.sleep(_LOOK)


def _holder(handle: int) -> str:
    """In words, by what the holder wrote."""
    try:
        process, since = os.pread(handle, _NOTE, 0).decode().split()
        return f"process {int(process)} (for {max(0, time.time() - int(since)):.0f} s)"
    except (OSError, ValueError):
        return "another process"
