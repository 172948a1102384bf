"""What is in the data folder, and is it what its publisher released?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from leakgauge import catalog
from leakgauge.data._dataset import SPLITS, DataSource, StandardFile
from leakgauge.data.files import first_existing, matches
from leakgauge.errors import LeakgaugeError
from leakgauge.reading.files import data_root


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
