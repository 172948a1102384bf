"""Archives of data sets: what is unpacked stays in its folder."""

from __future__ import annotations

import os
import tarfile
from functools import partial
from pathlib import Path
from typing import Any

import bombs
from reader import Reader, Traps, tarred, zipped

from leakgauge.data.fetching import unpack


def make_archive(folder: Path, file: str) -> None:
    members: dict[str, Any] = {"set/a": b"x", "set/b": b"y"}
    (folder / file).write_bytes(zipped(members) if file.endswith(".zip") else tarred(members))
    (folder / "root").mkdir()


def read_archive(folder: Path, file: str) -> object:
    (folder / "root").mkdir(exist_ok=True)
    made = unpack(folder / file, folder / "root", "set")
    outside = [p for p in folder.iterdir() if p.name not in ("root", file)]
    assert not outside, f"{outside} appeared beside the folder"
    return made


def tar_traps(_: Path) -> Traps:
    return (
        tarred({"set/a": b"x", "../x": b"x"}),
        tarred({"set/a": b"x", "/tmp/leakgauge-escaped": b"x"}),
        tarred({"set/a": b"x", "set/l": (tarfile.SYMTYPE, "/tmp")}),
        tarred({"set": (tarfile.SYMTYPE, ".."), "set/x": b"x"}),
        tarred({"set/a": b"x", "set/l": (tarfile.LNKTYPE, "../x")}),
        tarred({"set/a": b"x", "set/d": (tarfile.CHRTYPE, "")}),
        tarred({"set/a": b"x", "set/f": (tarfile.FIFOTYPE, "")}),
        tarred({"set/inner.tar.gz": tarred({"../x": b"x"})}),
        bombs.tar_of("set/zeros"),
        tarred({"set/\udcff": b"x"}) if os.name == "posix" else b"",
    )


def zip_traps(_: Path) -> Traps:
    return (
        zipped({"set/a": b"x", "../x": b"x"}),
        zipped({"set/a": b"x", "/tmp/leakgauge-escaped": b"x"}),
        zipped({"set/a": b"/tmp"}, link="set/a"),
        zipped({"set/inner.zip": zipped({"../x": b"x"})}),
        bombs.zip_of("set/zeros"),
    )


READERS: tuple[Reader, ...] = (
    Reader(
        "archive-tar",
        "set.tar.gz",
        partial(make_archive, file="set.tar.gz"),
        partial(read_archive, file="set.tar.gz"),
        tar_traps,
    ),
    Reader(
        "archive-zip",
        "set.zip",
        partial(make_archive, file="set.zip"),
        partial(read_archive, file="set.zip"),
        zip_traps,
    ),
)
