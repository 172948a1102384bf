"""What is in the data folder, is it what its publisher released, and getting it over the network when asked to.

A download resumes where it broke off and is checked before it gets its name. An archive is unpacked inside the data
folder only, and half an archive never counts.
"""

from __future__ import annotations

import http
import http.client
import os
import shutil
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from leakgauge import catalog
from leakgauge.data._dataset import SPLITS, DataSource, Download, StandardFile
from leakgauge.data.files import checksum_of, first_existing, matches
from leakgauge.errors import BadInput, LeakgaugeError, Unreadable
from leakgauge.reading.files import cannot_write, data_root, keep_whole, remove
from leakgauge.reading.unpacked import most_unpacked, open_tar, open_zip

Progress = Callable[[int, int | None], None]  # bytes done, bytes in all if known

_PIECE = 1 << 16
_TIMEOUT = 30  # seconds without a byte
_LOOK, _SLOWEST = 60.0, 2_000  # seconds over which so many bytes a second have to come: days for the largest set


@dataclass(frozen=True)
class FileCheck:
    """One file or folder of a data set."""

    name: str  # of the data set
    path: str
    status: str  # "ok", "missing", "differs" or "unverified" (reads well, but no checksum is published)
    note: str = ""


@dataclass(frozen=True)
class InventoryRow:
    """One data set, as `leakgauge data list` shows it."""

    name: str
    summary: str
    embedded: bool
    present: bool
    samples: int | None  # train and test together, as published


def verify(name: str, root: Path | None = None) -> tuple[FileCheck, ...]:
    """Every file that the data set consists of, compared with its published checksum if there is one."""
    return verify_source(catalog.get("data", name), root)


def verify_source(source: DataSource, root: Path | None = None) -> tuple[FileCheck, ...]:
    if source.embedded:
        return (FileCheck(source.name, "", "ok", "comes with the installed packages"),)
    return tuple(_check(source, file, data_root(root)) for file in source.files)


def inventory(root: Path | None = None) -> tuple[InventoryRow, ...]:
    """All data sets by name. Looks only whether the files are there; `verify` reads them."""
    folder = data_root(root)
    return tuple(
        InventoryRow(
            source.name,
            source.summary,
            source.embedded,
            present=all(f.optional or first_existing(folder, f.paths) for f in source.files),
            samples=sum(source.samples) if source.samples else None,
        )
        for source in catalog.find("data").values()
    )


def _check(source: DataSource, file: StandardFile, folder: Path) -> FileCheck:
    path = first_existing(folder, file.paths)
    if path is None:
        note = "optional" if file.optional else f"run 'leakgauge data fetch {source.name}'"
        return FileCheck(source.name, str(folder / file.paths[0]), "missing", note)
    try:
        if not file.checksum:
            samples = sum(len(source.read(folder, split)) for split in SPLITS)
            return FileCheck(source.name, str(path), "unverified", f"reads well, {samples} samples")
        if matches(path, file.checksum, unzip=True):
            return FileCheck(source.name, str(path), "ok")
    except LeakgaugeError as error:
        return FileCheck(source.name, str(path), "differs", str(error))
    return FileCheck(source.name, str(path), "differs", f"its contents are not {file.checksum}")


def fetch(name: str, root: Path | None = None, progress: Progress = lambda _, __: None) -> tuple[Path, ...]:
    """Download and unpack what is missing or damaged; returns the new files and folders, if any.

    `progress` gets the bytes of the current file: (done, total).
    """
    return fetch_source(catalog.get("data", name), root, progress)


def fetch_source(
    source: DataSource, root: Path | None = None, progress: Progress = lambda _, __: None
) -> tuple[Path, ...]:
    folder = data_root(root)
    if all(check.status in ("ok", "unverified") for check in verify_source(source, folder)):
        return ()
    fetched = []
    for item in source.downloads:
        target = folder / item.path
        if not (target.is_file() and matches(target, item.checksum)):
            _download(item, target, progress)
        elif not item.unpacks_to:
            continue
        if item.unpacks_to:
            archive, target = target, unpack(target, folder, item.unpacks_to)
            with suppress(OSError):  # the set is complete; the archive is only in the way
                archive.unlink()
        fetched.append(target)
    return tuple(fetched)


def _download(item: Download, target: Path, progress: Progress) -> None:
    """Fetch `item` to its place. What an interrupted run left as .part is resumed."""
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _receive(item, part, progress)
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise LeakgaugeError(f"could not fetch {item.url}: {reason}; run it again to resume") from error
    got = checksum_of(part, item.checksum.partition(":")[0])
    if got != item.checksum:
        remove(part)
        allowed, do = f"as published ({item.checksum})", f"run it again, or get it elsewhere and put it at {target}"
        raise BadInput(f"the file at {item.url}", allowed=allowed, got=got, do=do)
    try:
        keep_whole(part, target)
    except OSError as error:
        raise cannot_write(target, error) from error


def _receive(item: Download, part: Path, progress: Progress) -> None:
    """Append to `part` what it lacks, or write it anew if the server cannot continue."""
    done = part.stat().st_size if part.exists() else 0
    if done == item.size:
        return  # interrupted between the last byte and the check
    with _request(item.url, done) as response:
        if response.status == http.HTTPStatus.PARTIAL_CONTENT and _starts_at(response) != done:
            raise http.client.HTTPException("the server sent another range than the one asked for")
        if response.status != http.HTTPStatus.PARTIAL_CONTENT:
            done = 0  # the server cannot resume and sends all of it
        flags = os.O_APPEND if done else os.O_TRUNC
        flags |= os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)  # never through a link
        with os.fdopen(os.open(part, flags, 0o666), "ab" if done else "wb") as file:
            progress(done, item.size)
            then, before = time.monotonic(), done
            while done <= item.size and (piece := response.read1(_PIECE)):  # never fill the disk
                file.write(piece)
                done += len(piece)
                progress(done, item.size)
                if (passed := time.monotonic() - then) >= _LOOK:  # a slow drip would hold us for ever
                    if done - before < _SLOWEST * passed:
                        raise TimeoutError(f"it sends less than {_SLOWEST:,} bytes a second")
                    then, before = time.monotonic(), done
    # A short answer that is complete is left to the checksum; a broken connection can be resumed.
    if done < item.size and response.length:
        raise http.client.HTTPException(f"the connection ended after {done} of {item.size} bytes")


def _request(url: str, done: int) -> Any:
    """The answer, from byte `done` on if the server can; from the start if it has no such byte."""
    headers = {"User-Agent": "leakgauge"} | ({"Range": f"bytes={done}-"} if done else {})
    try:
        return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        if done and error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            error.close()
            return _request(url, 0)
        raise


def _starts_at(response: Any) -> int | None:
    """First byte of a "bytes 100-199/200" answer."""
    unit, _, numbers = (response.headers.get("Content-Range") or "").partition(" ")
    first = numbers.partition("-")[0]
    return int(first) if unit == "bytes" and first.isdecimal() else None


def unpack(archive: Path, root: Path, folder: str) -> Path:
    """Unpack beside its destination, then move `folder` into place; files already there are replaced."""
    try:
        staging = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=root))
    except OSError as error:
        raise cannot_write(root, error) from error
    try:
        (_unzip if archive.suffix == ".zip" else _untar)(archive, staging)
        if not (staging / folder).is_dir():
            raise Unreadable(f"no folder {folder!r}")
        _move(staging / folder, root / folder)
    except Exception as error:  # a damaged archive can raise nearly anything
        if isinstance(error, OSError) and error.errno is not None:  # gzip has none when an archive is damaged
            raise cannot_write(root / folder, error) from error
        got = error if isinstance(error, Unreadable) else f"{type(error).__name__}: {error}"
        what, do = f"archive {str(archive)!r}", "delete it and fetch it again"
        raise BadInput(what, allowed="a sound archive of plain files", got=got, do=do) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return root / folder


def _untar(archive: Path, destination: Path) -> None:
    """Files and folders only, and not too much of them: data sets have no use for links and devices, attackers do."""
    left = most_unpacked(archive)

    def checked(member: tarfile.TarInfo, place: str) -> tarfile.TarInfo | None:
        nonlocal left
        if not (member.isreg() or member.isdir()) or not _stays_inside(member.name):
            raise tarfile.TarError(f"member {member.name!r} is a link, a device, or points outside")
        left -= member.size
        if left < 0 or member.size < 0:
            raise tarfile.TarError("it unpacks to more than a hundred times its size")
        return tarfile.data_filter(member, place)

    with open_tar(archive) as tar:
        tar.extractall(destination, filter=checked)


def _unzip(archive: Path, destination: Path) -> None:
    with open_zip(archive) as zipped:
        for name in zipped.namelist():
            if not _stays_inside(name):
                raise zipfile.BadZipFile(f"member {name!r} points outside")
        zipped.extractall(destination)  # writes links as plain files


def _stays_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and "\\" not in name and ":" not in name


def _move(source: Path, target: Path) -> None:
    """At once if nothing is there yet, else file by file: a partly filled folder gets completed."""
    for path in sorted(p for p in source.rglob("*") if p.is_file()) if target.exists() else [source]:
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        keep_whole(path, place)
