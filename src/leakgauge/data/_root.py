"""Where downloaded data sets lie, and what to say when they do not."""

from __future__ import annotations

from pathlib import Path

from leakgauge.errors import BadInput
from leakgauge.reading.files import VARIABLE, data_root


def first_existing(root: Path, paths: tuple[str, ...]) -> Path | None:
    """The first of `paths`, relative to `root` or absolute, that is there."""
    return next((root / p for p in paths if (root / p).exists()), None)


def require(name: str, root: Path | None, *paths: str) -> Path:
    """As `first_existing`; if none is there, says where it looked and how to get the data."""
    folder = data_root(root)
    found = first_existing(folder, paths)
    if found is None:
        raise missing(name, *(folder / p for p in paths))
    return found


def missing(name: str, *looked: Path) -> BadInput:
    return BadInput(
        f"data set {name!r}",
        allowed=f"at {' or '.join(str(p) for p in looked)}",
        got="nothing there",
        do=f"run 'leakgauge data fetch {name}', or point {VARIABLE} at the folder that holds it",
    )


def damaged(path: Path, allowed: str, got: object) -> BadInput:
    """The error for a file that is there but not what it should be."""
    return BadInput(f"file {str(path)!r}", allowed=allowed, got=got, do="delete it and fetch it again")
