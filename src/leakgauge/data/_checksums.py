"""Checksums, written "md5:..." or "sha256:...". Files that lie unpacked are known by md5, which finds damage."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from pathlib import Path

from leakgauge.data._root import damaged
from leakgauge.reading.files import regular

_PIECE = 1 << 20


def checksum_of(path: Path, algorithm: str, *, unzip: bool = False) -> str:
    """Of the file, or of what a .gz file holds: the same data compressed anew is still the same data."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    try:
        with gzip.open(regular(path)) if unzip and path.suffix == ".gz" else regular(path).open("rb") as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
    except (OSError, EOFError, zlib.error) as error:
        raise damaged(path, "a readable file", f"{type(error).__name__}: {error}") from error
    return f"{algorithm}:{digest.hexdigest()}"


def matches(path: Path, checksum: str, *, unzip: bool = False) -> bool:
    return checksum_of(path, checksum.partition(":")[0], unzip=unzip) == checksum
