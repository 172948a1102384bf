"""One file over HTTP: resumed where it broke off, checked before it gets its name."""

from __future__ import annotations

import http
import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from leakgauge.data._checksums import checksum_of
from leakgauge.data._dataset import Download
from leakgauge.errors import BadInput, LeakgaugeError
from leakgauge.reading.files import cannot_write, keep_whole, remove

Progress = Callable[[int, int | None], None]  # bytes done, bytes in all if known

_PIECE = 1 << 16
_TIMEOUT = 30  # seconds without a byte
_LOOK, _SLOWEST = 60.0, 2_000  # seconds over which so many bytes a second have to come: days for the largest set


def download(item: Download, root: Path, progress: Progress) -> Path:
    """Fetch `item` to its place under `root`. What an interrupted run left as .part is resumed."""
    target = root / item.path
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
        raise BadInput(
            f"the file at {item.url}",
            allowed=f"as published ({item.checksum})",
            got=got,
            do=f"run it again, or get it elsewhere and put it at {target}",
        )
    try:
        keep_whole(part, target)
    except OSError as error:
        raise cannot_write(target, error) from error
    return target


def _receive(item: Download, part: Path, progress: Progress) -> None:
    """Append to `part` what it lacks, or write it anew where the server cannot continue."""
    done = part.stat().st_size if part.exists() else 0
    if done == item.size:
        return  # interrupted between the last byte and the check
    with _open(item.url, done) as response:
        if response.status == http.HTTPStatus.PARTIAL_CONTENT and _starts_at(response) != done:
            raise http.client.HTTPException("the server sent another range than the one asked for")
        if response.status != http.HTTPStatus.PARTIAL_CONTENT:
            done = 0  # the server cannot resume and sends all of it
        with _opened(part, anew=not done) as file:
            progress(done, item.size)
            pace = _Pace(done)
            while done <= item.size and (piece := response.read1(_PIECE)):  # never fill the disk
                file.write(piece)
                done += len(piece)
                progress(done, item.size)
                pace.keep(done)
    # A short answer that is complete is left to the checksum; a broken connection can be resumed.
    if done < item.size and response.length:
        raise http.client.HTTPException(f"the connection ended after {done} of {item.size} bytes")


@dataclass
class _Pace:
    """A server that sends a byte now and then would hold us for ever."""

    bytes_then: int
    then: float = field(default_factory=time.monotonic)

    def keep(self, done: int) -> None:
        """Raises if too little came since the last look."""
        passed = time.monotonic() - self.then
        if passed < _LOOK:
            return
        if done - self.bytes_then < _SLOWEST * passed:
            raise TimeoutError(f"it sends less than {_SLOWEST:,} bytes a second")
        self.bytes_then, self.then = done, time.monotonic()


def _opened(part: Path, anew: bool) -> BinaryIO:
    """To go on with, or to write anew; never through a link."""
    flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | (os.O_TRUNC if anew else os.O_APPEND)
    return os.fdopen(os.open(part, flags, 0o666), "wb" if anew else "ab")


def _open(url: str, done: int) -> Any:
    """The answer, from byte `done` on if the server can; from the start if it has no such byte."""
    headers = {"User-Agent": "leakgauge"} | ({"Range": f"bytes={done}-"} if done else {})
    try:
        return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        if done and error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            error.close()
            return _open(url, 0)
        raise


def _starts_at(response: Any) -> int | None:
    """First byte of a "bytes 100-199/200" answer."""
    unit, _, numbers = (response.headers.get("Content-Range") or "").partition(" ")
    first = numbers.partition("-")[0]
    return int(first) if unit == "bytes" and first.isdecimal() else None
