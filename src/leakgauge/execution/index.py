"""Which finished trial is in which file: RUN/index.sqlite, in WAL mode, so that several processes can write at once.

The files are the truth, and each names its cell and trials; see `leakgauge.execution.store`. The index gives every
trial to one file, that of the process which finished it first, and shows what is missing without opening any. A damaged
index is put aside and made anew from the files, so nothing has to be run again because of it.
"""

from __future__ import annotations

import errno
import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

from leakgauge.execution.locks import claimed
from leakgauge.reading.files import cannot_write

Held = tuple[str, str, Sequence[int]]  # a file's name, its cell, its trials
T = TypeVar("T")

_PATIENCE = 60.0  # seconds to wait for another process that writes
_TABLE = """CREATE TABLE IF NOT EXISTS trials (
    cell TEXT NOT NULL, trial INTEGER NOT NULL, file TEXT NOT NULL, finished REAL NOT NULL, PRIMARY KEY (cell, trial)
) WITHOUT ROWID"""
_FILE = re.compile(r"\w[\w.-]*")  # beside one another: no name leads out of their folder
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)  # the last: its table is not ours
_MEANS = {  # what the system would have called it
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
    sqlite3.SQLITE_IOERR: errno.EIO,
}


class TrialIndex:
    """The index of one run directory. `contents` reads the files, for an index that does not know them yet."""

    def __init__(
        self, path: Path, contents: Callable[[set[str]], Iterable[Held]], notice: Callable[[str], None] = lambda _: None
    ) -> None:
        self.path = path
        self._contents = contents
        self._notice = notice
        _refuse_link(path)
        with claimed(path, wait=True, notice=notice):  # of two processes that find it damaged, one mends it
            if (why := self._damage()) is not None:
                self._put_aside(why)
            self._fill()

    def add(self, cell: str, trials: Sequence[int], file: str) -> None:
        """These trials are finished and in `file`; a trial that another process finished first stays where it is."""
        self._mended(_insert(file, cell, trials))

    def held(self, cell: str) -> dict[int, str]:
        """Trial -> file, of the trials of this cell that are finished."""
        return dict(self._rows("SELECT trial, file FROM trials WHERE cell = ?", cell))

    def drop_file(self, file: str) -> None:
        self._rows("DELETE FROM trials WHERE file = ?", file)

    def drop_cell(self, cell: str) -> None:
        self._rows("DELETE FROM trials WHERE cell = ?", cell)

    def _rows(self, query: str, value: str) -> list[Any]:
        return self._mended(lambda db: db.execute(query, (value,)).fetchall())

    def _fill(self) -> None:
        """Take in files that are not known: their process was killed before it could add them, or the index is new."""
        known = {row[0] for row in self._do(lambda db: db.execute("SELECT DISTINCT file FROM trials").fetchall())}
        for file, cell, trials in self._contents(known):
            self._do(_insert(file, cell, trials))

    def _mended(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """The action; once more on a new index if this one was damaged while we ran."""
        try:
            return self._do(action)
        except sqlite3.DatabaseError as error:
            with claimed(self.path, wait=True, notice=self._notice):
                if self._damage() is not None:
                    self._put_aside(str(error))
                self._fill()
            return self._do(action)

    def _do(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """One transaction on a connection of its own: none is left open if we are killed, or carried into a child."""
        try:
            with closing(sqlite3.connect(self.path, timeout=_PATIENCE)) as db:
                if db.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                    db.execute("PRAGMA journal_mode = WAL")
                db.execute("PRAGMA synchronous = NORMAL")  # the files are the truth
                db.execute(_TABLE)
                with db:
                    return action(db)
        except UnicodeDecodeError as error:  # in SQLite's message on damage, perhaps a column's name
            raise sqlite3.DatabaseError("it holds a name that is no text") from error
        except sqlite3.DatabaseError as error:
            if _code(error) in _DAMAGED:
                raise
            raise cannot_write(self.path, OSError(_MEANS.get(_code(error), errno.EIO), str(error))) from error

    def _damage(self) -> str | None:
        """Why the index cannot be used, or None."""
        try:
            rows = self._do(lambda db: db.execute("SELECT cell, trial, file, finished FROM trials").fetchall())
            check = str(self._do(lambda db: db.execute("PRAGMA quick_check(1)").fetchone()[0]))
        except sqlite3.DatabaseError as error:
            return str(error)
        texts = all(isinstance(cell, str) and isinstance(file, str) for cell, _, file, _ in rows)
        if texts and all(type(trial) is int and _FILE.fullmatch(file) for _, trial, file, _ in rows):
            return None if check == "ok" else check
        return "it names something else than files of trials"  # which would be thrown away if they are none

    def _put_aside(self, why: str) -> None:
        self._notice(f"{self.path} is damaged ({why}): made anew from the finished trials beside it")
        try:
            self.path.replace(self.path.with_name(f"{self.path.name}.damaged"))
            for tail in ("-wal", "-shm"):
                self.path.with_name(self.path.name + tail).unlink(missing_ok=True)
        except OSError as error:
            raise cannot_write(self.path, error) from error


def _refuse_link(path: Path) -> None:
    """A link in the index's place would lead its writer to another file."""
    for name in ("", "-wal", "-shm"):
        if path.with_name(path.name + name).is_symlink():
            raise cannot_write(path, OSError(errno.ELOOP, f"{path.name}{name} is a link"))


def _insert(file: str, cell: str, trials: Sequence[int]) -> Callable[[sqlite3.Connection], object]:
    rows = [(cell, trial, file, time.time()) for trial in trials]
    return lambda db: db.executemany("INSERT OR IGNORE INTO trials VALUES (?, ?, ?, ?)", rows)


def _code(error: sqlite3.Error) -> int:
    """The primary result code; the extended ones keep it in their lowest byte."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
