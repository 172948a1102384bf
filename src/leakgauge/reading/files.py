"""Where data lies, and how files are read and written: whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

from leakgauge.errors import BadInput, Unreadable

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]

VARIABLE = "LEAKGAUGE_DATA"
HAS_LOCKS = fcntl is not None  # has this system such locks?
_PART = ".part"
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)  # what file systems without locks answer
_NO_NAMELESS = (errno.EISDIR, errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)  # the same, of such files
_OPEN_FILES = "/proc/self/fd"
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


def data_root(root: Path | None = None) -> Path:
    """The given folder, else the one that LEAKGAUGE_DATA names, else the user's cache."""
    if root is not None:
        return Path(root).expanduser()
    named = os.environ.get(VARIABLE)
    return Path(named).expanduser() if named else Path.home() / ".cache" / "leakgauge"


def make_folder(folder: Path) -> None:
    """Make sure that the folder is there and can be written to. Called before the work, not after it."""
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"output {str(folder)!r}", allowed="a folder", got="a file", do="choose another --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise cannot_write(folder, error) from error
    remove_leftovers(folder)


def write_whole(path: Path, content: bytes, *, private: bool = False) -> None:
    """To a file without a name first, or a neighbour: a reader never sees half of it, and a full disk leaves none.

    On disk when this returns, its name too. A `private` file can be read by its owner only.
    """
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_PART}")
    try:
        try:
            handle, nameless = _new(part, 0o600 if private else 0o666)
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(handle)
                if nameless:  # a name can be given to it, but not one that is taken
                    os.link(f"{_OPEN_FILES}/{handle}", part, src_dir_fd=handle)  # which makes Python follow it
                os.replace(part, path)
            _sync(path.parent)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise cannot_write(path, error) from error


def keep_whole(finished: Path, target: Path) -> None:
    """Give a finished file or folder its name; on disk when this returns, with all that is in it."""
    for path in (finished, *finished.rglob("*")):
        _sync(path)
    os.replace(finished, target)
    _sync(target.parent)


def remove(path: Path) -> None:
    """Make sure that the file is not there."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error


def remove_leftovers(folder: Path) -> None:
    """Parts of files, and locks, whose process was killed; parts may hold private samples."""
    for part in (path for pattern in (f".*{_PART}", ".*.lock") for path in folder.glob(pattern)):
        with suppress(OSError):
            handle = os.open(part, os.O_RDONLY | _NO_LINKS | getattr(os, "O_NONBLOCK", 0))
            try:
                if hold(handle):
                    part.unlink(missing_ok=True)
            finally:
                os.close(handle)


def regular(path: Path) -> Path:
    """The path, unless it leads to a pipe or a device, which would keep a reader waiting for ever."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "no regular file", str(path))
    return path


def read_json(path: Path) -> Any:
    """What the file holds. Not there, nested too deep, cut off or in another encoding, it is refused alike."""
    try:
        return json.loads(regular(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise Unreadable(type(error).__name__) from error


def _new(part: Path, mode: int) -> tuple[int, bool]:
    """A new file, open and held until it is closed: a part that nobody holds is a dead process's.

    True beside it: it has no name, and whoever is killed while it is written leaves nothing.
    """
    handle = _nameless(part.parent, mode)
    if handle is not None:
        return handle, True
    while True:
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINKS, mode)
        try:
            if hold(handle) and is_file_at(part, handle):
                return handle, False
        except OSError:
            os.close(handle)
            raise
        os.close(handle)  # taken for a dead process's before it was held


def _nameless(folder: Path, mode: int) -> int | None:
    """None where the system has no files without a name."""
    if not hasattr(os, "O_TMPFILE") or not os.path.isdir(_OPEN_FILES):
        return None
    try:
        handle = os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno in _NO_NAMELESS:
            return None
        raise
    try:
        hold(handle)
    except OSError:
        os.close(handle)
        raise
    return handle


def is_file_at(path: Path, handle: int) -> bool:
    """Is this open file the one that the path leads to now?"""
    try:
        there, ours = os.stat(path, follow_symlinks=False), os.fstat(handle)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)


def hold(handle: int) -> bool:
    """Lock an open file for as long as it is open; False if another process has it. True where there are no locks."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True


def _sync(path: Path) -> None:
    """A name is on disk once its folder is; where a folder cannot be opened so, the system does it by itself."""
    with suppress(PermissionError, NotImplementedError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system without it
                raise
        finally:
            os.close(handle)


def cannot_write(path: Path, error: OSError) -> BadInput:
    """What a user reads who runs out of disk or may not write here; finished work stays and is reused."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    do = "free some disk space or choose another --out" if full else "choose another --out"
    return BadInput(f"output {str(path)!r}", allowed="writable", got=error.strerror or str(error), do=do)
