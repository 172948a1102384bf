"""Archives, and how much may come out of them: a small one that unpacks to gigabytes was made to do harm."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from leakgauge.errors import Unreadable
from leakgauge.reading.files import regular

_TIMES = 100  # what arrays, pictures and weights shrink to when packed stays far above a hundredth
_ALWAYS = 64 << 20  # bytes that any file may unpack to


class _Bounded(io.BufferedReader):
    """Python gets memory for all that it is asked to read before it looks; archives ask for what is written in them."""

    def __init__(self, raw: Any, most: int) -> None:
        super().__init__(raw)
        self._most = most

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(-1 if size is None or size < 0 else min(size, self._most))


def most_unpacked(path: Path) -> int:
    """Bytes that the file may unpack to."""
    return max(_ALWAYS, _TIMES * path.stat().st_size)


@contextmanager
def open_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """An archive whose members have names of their own and do not unpack to too much; each gives what it declares."""
    size = path.stat().st_size
    with regular(path).open("rb", buffering=0) as raw, _Bounded(raw, size) as file, zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        if len(set(names)) < len(names):
            raise Unreadable("an archive with two members of one name")
        if sum(member.file_size for member in archive.infolist()) > most_unpacked(path):
            raise Unreadable("an archive that unpacks to more than a hundred times its size")
        yield archive


@contextmanager
def open_tar(path: Path) -> Iterator[tarfile.TarFile]:
    """A packed archive (.tar.gz, .tgz); what its members add up to is for the caller to count."""
    most = most_unpacked(path)
    with gzip.open(regular(path)) as raw, _Bounded(raw, most) as file, tarfile.open(fileobj=file, mode="r:") as archive:
        yield archive
