"""`README.md` of a recipe: every table with the paper's figure and ours in one cell."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from leakgauge.files import write_whole
from leakgauge.recipes._measured import Entry
from leakgauge.recipes._recipe import Cell, Recipe, Table
from leakgauge.recipes._statistics import heading, written

FILE = "README.md"
_MARKER = "<!-- Written by `leakgauge reproduce` from recipe.py and measured.json; edit those. -->"
_LEGEND = (
    "In each cell: the paper's figure → ours [95 % interval]. A dash before the arrow means that the paper has no such "
    "figure; a dash behind it, that there was nothing to average; a cell without an arrow was not run. "
    "n counts victims; failed ones are in every figure except those of successes."
)


def write(folder: Path, recipe: Recipe, entries: Sequence[Entry]) -> None:
    write_whole(folder / FILE, render(recipe, entries).encode())


def render(recipe: Recipe, entries: Sequence[Entry]) -> str:
    """The page: who and where first, then table after table."""
    parts = [
        _MARKER,
        f"# {recipe.name}",
        f"{recipe.summary}. {recipe.paper}.",
        _LEGEND,
        _where(recipe, entries),
        recipe.note,
    ]
    again = f"leakgauge reproduce {recipe.name}"
    parts.append(f"```console\n$ {again} --quick\n$ {again} --device cuda --out recipes/{recipe.name}\n```")
    parts += [_section(table, [e for e in entries if e.table == table.id]) for table in recipe.tables]
    return "\n\n".join(parts) + "\n"


def figure(entry: Entry) -> str:
    """`0.973 → 0.980 [0.930, 0.998]`"""
    text = f"{written(entry.statistic, entry.reported)} → {written(entry.statistic, entry.value)}"
    return text + bounds(entry)


def bounds(entry: Entry) -> str:
    if entry.low is None or entry.high is None:
        return ""
    return f" [{written(entry.statistic, entry.low)}, {written(entry.statistic, entry.high)}]"


def _where(recipe: Recipe, entries: Sequence[Entry]) -> str:
    cells = sum(len(table.cells) for table in recipe.tables)
    done = len({e.place[:3] for e in entries})
    if not entries:
        return f"Measured: none of {cells} cells."
    sizes = [e.trials for e in entries]
    span = f"{min(sizes)} to {max(sizes)}" if min(sizes) < max(sizes) else f"{sizes[0]}"
    devices, versions, commits = (
        ", ".join(sorted({part for e in entries for part in getattr(e, field).split("; ")}))
        for field in ("device", "version", "commit")
    )
    return (
        f"Measured: {done} of {cells} cells, {span} victims each, on {devices}, "
        f"with leakgauge {versions} (commit {commits})."
    )


def _section(table: Table, entries: Sequence[Entry]) -> str:
    columns = list(dict.fromkeys(cell.column for cell in table.cells))
    rows = list(dict.fromkeys(cell.row for cell in table.cells))
    cells = {(cell.row, cell.column): cell for cell in table.cells}
    lines = [["", *columns], ["---"] * (len(columns) + 1)]
    for row in rows:
        lines.append([row, *(_content(cells.get((row, column)), entries) for column in columns)])
    grid = "\n".join("| " + " | ".join(text.replace("|", "\\|") for text in line) + " |" for line in lines)
    return f"## Table {table.id}: {table.title}\n\n{grid}\n\nConvention: {table.convention}\n\n{table.note}"


def _content(cell: Cell | None, entries: Sequence[Entry]) -> str:
    """One line per statistic and the sample behind them; only the paper's figures where nothing was run."""
    if cell is None:
        return ""
    mine = [e for e in entries if (e.row, e.column) == (cell.row, cell.column)]
    if not mine:
        known = {s: r for s, r in cell.reported.items() if r is not None}
        return "<br>".join(f"{heading(s)}: {written(s, r)}" for s, r in known.items())
    sample = f"n = {mine[0].trials}"
    if mine[0].failed:
        sample += f", {mine[0].failed} failed"
    if mine[0].state != "untrained":
        sample += f"; {mine[0].state}"
    return "<br>".join([*(f"{heading(e.statistic)}: {figure(e)}" for e in mine), sample])
