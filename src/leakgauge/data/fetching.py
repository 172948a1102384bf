"""Gets data sets from their publishers over the network, and only when asked to."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from leakgauge import catalog
from leakgauge.data._checksums import matches
from leakgauge.data._dataset import DataSource
from leakgauge.data._download import Progress, download
from leakgauge.data._unpack import unpack
from leakgauge.data.verifying import verify_source
from leakgauge.reading.files import data_root


def no_progress(done: int, total: int | None) -> None:
    """For callers that do not watch."""


def fetch(name: str, root: Path | None = None, progress: Progress = no_progress) -> tuple[Path, ...]:
    """Download and unpack what is missing or damaged; returns the new files and folders, if any.

    `progress` is told the bytes of the current file: (done, total).
    """
    return fetch_source(catalog.get("data", name), root, progress)


def fetch_source(source: DataSource, root: Path | None = None, progress: Progress = no_progress) -> tuple[Path, ...]:
    folder = data_root(root)
    if all(check.status in ("ok", "unverified") for check in verify_source(source, folder)):
        return ()
    fetched = []
    for item in source.downloads:
        target = folder / item.path
        if not (target.is_file() and matches(target, item.checksum)):
            target = download(item, folder, progress)
        elif not item.unpacks_to:
            continue
        if item.unpacks_to:
            archive, target = target, unpack(target, folder, item.unpacks_to)
            with suppress(OSError):  # the set is there; the archive is only in the way
                archive.unlink()
        fetched.append(target)
    return tuple(fetched)
