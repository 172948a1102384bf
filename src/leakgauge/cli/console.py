"""Progress and errors go to stderr, results to stdout; under --json stdout holds one JSON document and no more."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from leakgauge.reading.files import make_folder, write_whole
from leakgauge.reading.visible import shortened, visible, visible_lines

if TYPE_CHECKING:
    from leakgauge.audit.run import Watch

_WIDEST = 2_000  # characters in one place of a table


def say(text: str) -> None:
    """A line for the person, on stderr."""
    _write(sys.stderr, shortened(visible(text)))


def show(text: str) -> None:
    """A line of the result, on stdout."""
    _write(sys.stdout, shortened(visible(text)))


def say_lines(text: str) -> None:
    """Several lines of our own on stderr: a command's help, a traceback."""
    _write(sys.stderr, visible_lines(text))


def show_json(value: Any) -> None:
    _write(sys.stdout, json.dumps(value, indent=2, allow_nan=False))


def deliver(result: Any, as_json: bool, shown: Callable[[], None], file: Path | None = None) -> None:
    """A command's result: as JSON or as `shown` prints it; also as JSON in `file`, if there is one."""
    if file is not None:
        make_folder(file.parent)
        write_whole(file, json.dumps(result, indent=2, allow_nan=False).encode())
    if as_json:
        show_json(result)
    else:
        shown()
    if file is not None:
        say(f"written: {file}")


def _write(stream: TextIO, text: str) -> None:
    stream.write(text + "\n")
    stream.flush()


def show_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table on stdout, as wide as the terminal; piped, as wide as it needs to be."""
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(shortened(visible(str(word)), _WIDEST) for word in row))
    width = None if sys.stdout.isatty() else 240
    Console(width=width, soft_wrap=False, highlight=False, markup=False, emoji=False).print(table)


@contextmanager
def watching() -> Iterator[Watch]:
    """A progress bar with time left on a terminal, one line per cell elsewhere; both on stderr."""
    if not sys.stderr.isatty():
        started: set[str] = set()

        def line(number: int, cells: int, name: str, share: float) -> None:  # noqa: ARG001
            if name not in started:
                started.add(name)
                say(f"[{number + 1}/{cells}] {name}")

        yield line
        return
    with progress_bar() as bar:
        task = bar.add_task("setting up", total=None)

        def update(number: int, cells: int, name: str, share: float) -> None:
            words = f"[{number + 1}/{cells}] {visible(name)}"
            bar.update(task, total=cells, completed=number + share, description=words)

        yield update


def progress_bar() -> Progress:
    """Words, a bar, the time so far and the time left; nothing of it where stderr is no terminal."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn(), TextColumn("left"))
    live = sys.stderr.isatty()
    return Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True, disable=not live)
