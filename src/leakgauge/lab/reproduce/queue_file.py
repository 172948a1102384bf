"""A queue file: which cells of which recipes to measure, the most important first.

    # a comment
    RECIPE | table | row | column
    RECIPE | table | row | column | trials=10, seeds=1

Table, row and column are patterns, as for `--cell`. The part after the fourth bar asks for fewer victims, seeds or
rounds in these cells.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from leakgauge.errors import BadInput, LeakgaugeError
from leakgauge.lab.recipes import get
from leakgauge.lab.reproduce.recipe import Recipe, Table, chosen
from leakgauge.reading.files import regular

_FORM = "RECIPE | table | row | column, patterns with * and ?, and perhaps | trials=10, seeds=1, size=3 behind it"
_LESS = ("trials", "seeds", "size")


@dataclass(frozen=True)
class Entry:
    """The cells of one recipe that fit one line's pattern."""

    recipe: Recipe
    tables: tuple[Table, ...]


def read_queue(path: Path) -> tuple[Entry, ...]:
    """Every line, in order; an error names the number of the first wrong line."""
    try:
        lines = regular(path).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise BadInput(
            "--queue",
            allowed="a text file",
            got=f"{str(path)!r} ({type(error).__name__})",
            do=f"write lines of {_FORM}",
        ) from error
    texts = [(number, line.partition("#")[0].strip()) for number, line in enumerate(lines, 1)]
    found = tuple(_entry(f"line {number} of {path}", text) for number, text in texts if text)
    if not found:
        raise BadInput("--queue", allowed="a file with lines", got=f"none in {str(path)!r}", do=f"write {_FORM}")
    return found


def _entry(where: str, text: str) -> Entry:
    parts = [part.strip() for part in text.split("|")]
    if len(parts) not in (4, 5) or not all(parts):
        raise BadInput(where, allowed=_FORM, got=repr(text), do="correct it, or put # before it")
    less = _less(where, parts[4]) if len(parts) == 5 else {}
    try:
        recipe = get(parts[0])
        pattern = " | ".join(parts[1:4])
        tables = chosen(
            recipe, pattern=pattern, trials=less.get("trials"), seeds=less.get("seeds"), size=less.get("size")
        )
        return Entry(recipe, tables)
    except LeakgaugeError as error:
        raise LeakgaugeError(f"{where}: {error}") from error


def _less(where: str, text: str) -> dict[str, int]:
    """`trials=10, seeds=1` as the fields that `chosen` takes."""
    found = {}
    for part in text.split(","):
        name, _, number = (piece.strip() for piece in part.partition("="))
        if name not in _LESS or not number.isdecimal() or not 1 <= len(number) <= 9 or int(number) < 1:
            near = difflib.get_close_matches(name, _LESS, n=1)
            do = f"did you mean {near[0]}?" if near and near[0] != name else "correct it, or leave it out"
            raise BadInput(where, allowed=f"NAME=NUMBER of {', '.join(_LESS)}, from 1", got=repr(part.strip()), do=do)
        found[name] = int(number)
    return found
