"""Where data lies, and how files are written: whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
from pathlib import Path

from leakgauge.errors import BadInput

VARIABLE = "LEAKGAUGE_DATA"


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


def write_whole(path: Path, content: bytes, *, private: bool = False) -> None:
    """To a neighbour first, then renamed: a reader never sees half a file, and a full disk leaves none.

    A `private` file can be read by its owner only.
    """
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        try:
            handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666)
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise cannot_write(path, error) from error


def cannot_write(path: Path, error: OSError) -> BadInput:
    """What a user reads who runs out of disk or may not write here; finished work stays and is reused."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return BadInput(
        f"output {str(path)!r}",
        allowed="writable",
        got=error.strerror or str(error),
        do="free some disk space or choose another --out" if full else "choose another --out",
    )
