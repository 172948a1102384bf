"""One process at a time: who holds the lock on a path may work on it; the system frees it if that process dies."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from leakgauge.reading.files import NO_LOCKS, cannot_write, is_file_at

try:
    import fcntl
except ImportError:  # no such locks on this system: two processes may do the same work twice, nothing worse
    fcntl = None  # type: ignore[assignment]

_LOOK = 0.05  # seconds between tries
_LONG = 5.0  # seconds of waiting after which it is said, and then each time it has doubled
_SAID = 200  # bytes that a holder writes of itself, at most


@contextmanager
def claimed(path: Path, *, wait: bool, notice: Callable[[str], None] = lambda _: None) -> Iterator[bool]:
    """Hold `path` inside; False, at once, if another process holds it and we are not to `wait`.

    The lock is a neighbour `.NAME.lock`, gone afterwards. Look again whether the work is done once it is yours. Who
    waits long is told by `notice` who holds it, and for how long.
    """
    if fcntl is None:
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
    """The open lock file, ours; None if another process has it."""
    began, said = time.monotonic(), _LONG
    while True:
        try:
            handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
        except OSError as error:
            raise cannot_write(lock, error) from error
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise cannot_write(lock, OSError(errno.EINVAL, "it is no regular file"))
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waited = time.monotonic() - began
            if wait and waited >= said:
                notice(f"waiting for {lock.name}, which {_holder(handle)} holds; {waited:.0f} s so far")
                said *= 2
            os.close(handle)
            if not wait:
                return None
            time.sleep(_LOOK)
            continue
        except OSError as error:
            if error.errno not in NO_LOCKS:
                os.close(handle)
                raise cannot_write(lock, error) from error
        except BaseException:
            os.close(handle)
            raise
        if is_file_at(lock, handle):
            with suppress(OSError):  # a full disk: only who asks is told less
                os.truncate(handle, 0)
                os.write(handle, f"{os.getpid()} {time.time():.0f}".encode())
            return handle
        os.close(handle)  # its holder removed it before we had it: another may hold the one that is there now


def _holder(handle: int) -> str:
    """In words, by what the holder wrote."""
    try:
        process, since = os.pread(handle, _SAID, 0).decode().split()
        return f"process {int(process)} (for {max(0, time.time() - int(since)):.0f} s)"
    except (OSError, ValueError):
        return "another process"
