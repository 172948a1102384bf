"""`leakgauge data list`, `verify` and `fetch`: data sets with checksums."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from leakgauge import catalog
from leakgauge.cli import options
from leakgauge.cli.console import say, show, show_json, show_table
from leakgauge.data import fetch, inventory, verify
from leakgauge.generators.dcgan import NAME as FACES
from leakgauge.generators.dcgan import fetch_faces
from leakgauge.metrics.lpips_weights import fetch_lpips
from leakgauge.reading.files import data_root as root_of

_WEIGHTS = {"lpips": fetch_lpips, FACES: fetch_faces}  # each with its own way
_WANTED = "Data sets to download; lpips or dcgan-faces for their weights."
WANTED = Annotated[list[str], typer.Argument(help=_WANTED, show_default=False)]
NAMES = Annotated[list[str] | None, typer.Argument(help="Data sets; default all.", show_default=False)]


def list_(data_root: options.DATA_ROOT = None, as_json: options.JSON = False) -> None:
    """Which data sets are known, and which of them are on this machine.

    Example: `leakgauge data list`
    """
    rows = inventory(data_root)
    if as_json:
        show_json([dataclasses.asdict(row) for row in rows])
        return
    states = ["embedded" if row.embedded else "present" if row.present else "-" for row in rows]
    cells = [[row.name, state, row.samples or "", row.summary] for row, state in zip(rows, states, strict=True)]
    show_table(["name", "here", "samples", "what it is"], cells)
    show(f"data folder: {root_of(data_root)}")


def verify_(names: NAMES = None, data_root: options.DATA_ROOT = None, as_json: options.JSON = False) -> int:
    """Compare the files on this machine with their published checksums. Exit code 1 if one differs or is missing.

    Example: `leakgauge data verify mnist`
    """
    rows = [row for name in names or catalog.find("data") for row in verify(_known(name), data_root)]
    if as_json:
        show_json([dataclasses.asdict(row) | {"path": str(row.path)} for row in rows])
    else:
        show_table(["data set", "file", "status", ""], [[r.name, r.path, r.status, r.note] for r in rows])
    found = {row.name for row in rows if row.status in ("ok", "unverified")}
    missing = set(names or ()) - found  # asked for by name and not there
    return 1 if missing or any(row.status == "differs" for row in rows) else 0


def fetch_(names: WANTED, data_root: options.DATA_ROOT = None, as_json: options.JSON = False) -> None:
    """Download data sets from their publishers: checked, resumed if interrupted, put in place only when whole.

    Example: `leakgauge data fetch mnist`
    """
    fetched: dict[str, list[str]] = {}
    for name in [name if name in _WEIGHTS else _known(name) for name in names]:  # all are known before the first comes
        if name in _WEIGHTS:
            fetched[name] = [str(_WEIGHTS[name](root_of(data_root)))]
            continue
        with _download_bar(name) as progress:
            fetched[name] = [str(path) for path in fetch(name, data_root, progress)]
        if not fetched[name]:
            say(f"{name}: already there")
    if as_json:
        show_json(fetched)
    else:
        for paths in fetched.values():
            for path in paths:
                show(path)


def _known(name: str) -> str:
    catalog.get("data", name)  # refuses an unknown name, with the nearest one
    return name


@contextmanager
def _download_bar(name: str) -> Iterator[Callable[[int, int | None], None]]:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
