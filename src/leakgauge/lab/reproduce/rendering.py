"""`README.md` of a recipe: every table with the paper's figure and ours in one cell."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from leakgauge.lab.reproduce import exposed
from leakgauge.lab.reproduce.distribution import draw, file_of
from leakgauge.lab.reproduce.measured import Entry
from leakgauge.lab.reproduce.recipe import Cell, Recipe, Study, Table
from leakgauge.lab.reproduce.statistics import heading, written
from leakgauge.reading.files import write_whole

FILE = "README.md"
_MARKER = "<!-- Written by `leakgauge lab reproduce` from recipe.py and measured.json; edit those. -->"
_LEGEND = (
    "In each cell: the paper's figure → ours [95 % interval]. A dash before the arrow means that the paper has no such "
    "figure; a dash behind it, that there was nothing to average; a cell without an arrow was not run. "
    "n counts victims; failed ones are in every figure except those of successes."
)
_PARTLY = "A line without an arrow was not kept when its cell was measured."
_STUDIES = (
    "Where nobody is attacked, n says what was counted instead, such as rounds of training. Round times are medians "
    "with quartiles in brackets, measured in lock step with the undefended federation in the same process; other "
    "figures of several seeds have Student's 95 % interval, and those of one seed none."
)


def write(folder: Path, recipe: Recipe, entries: Sequence[Entry]) -> None:
    write_whole(folder / FILE, render(recipe, entries).encode())


def render(recipe: Recipe, entries: Sequence[Entry]) -> str:
    """The page: what was measured and where, then the tables."""
    legend = f"{_LEGEND} {_STUDIES}" if _studied(recipe) else _LEGEND
    parts = [
        _MARKER,
        f"# {recipe.name}",
        f"{recipe.summary}. {recipe.paper}.",
        *([legend] if recipe.board is None else []),
        _where(recipe, entries),
        recipe.note,
    ]
    again = f"leakgauge lab reproduce {recipe.name}"
    parts.append(f"```console\n$ {again} --quick\n$ {again} --device cuda --out results/{recipe.name}\n```")
    if recipe.board is not None:
        return "\n\n".join([*parts, recipe.board(recipe, entries)]) + "\n"
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
    studied = _studied(recipe)
    sizes = [e.trials for e in entries if e.place[:3] not in studied]
    span = "" if not sizes else f"{min(sizes)} to {max(sizes)}" if min(sizes) < max(sizes) else f"{sizes[0]}"
    each = f", {span} victims each{' where there are any' if studied else ''}" if span else ""
    devices, versions, commits = (
        ", ".join(sorted({part for e in entries for part in getattr(e, field).split("; ")}))
        for field in ("device", "version", "commit")
    )
    return f"Measured: {done} of {cells} cells{each}, on {devices}, with leakgauge {versions} (commit {commits})."


def _studied(recipe: Recipe) -> set[tuple[str, str, str]]:
    """The places of the cells without victims."""
    return {(t.id, c.row, c.column) for t in recipe.tables for c in t.cells if isinstance(c.run, Study)}


def _section(table: Table, entries: Sequence[Entry]) -> str:
    columns = list(dict.fromkeys(cell.column for cell in table.cells))
    rows = list(dict.fromkeys(cell.row for cell in table.cells))
    cells = {(cell.row, cell.column): cell for cell in table.cells}
    lines = [["", *columns], ["---"] * (len(columns) + 1)]
    for row in rows:
        lines.append([row, *(_content(cells.get((row, column)), entries) for column in columns)])
    grid = "\n".join("| " + " | ".join(text.replace("|", "\\|") for text in line) + " |" for line in lines)
    picture = ""
    if draw(table, entries):
        sheet = f"![the most exposed pictures of each cell, true and recovered]({exposed.file_of(table)})"
        picture = f"\n\n![{table.title}]({file_of(table)})\n\n{sheet}"
    partly = f" {_PARTLY}" if any(_is_partly_measured(cell, entries) for cell in table.cells) else ""
    notes = f"Convention: {table.convention}{partly}\n\n{table.note}"
    return f"## {table.heading}: {table.title}{picture}\n\n{grid}\n\n{notes}"


def _content(cell: Cell | None, entries: Sequence[Entry]) -> str:
    """One line per statistic, then the sample behind them; only the paper's figures if nothing was measured."""
    if cell is None:
        return ""
    mine = _of_cell(cell, entries)
    lines = []
    for statistic, reported in cell.reported.items():
        if statistic in mine:
            lines.append(f"{heading(statistic)}: {figure(mine[statistic])}")
        elif reported is not None:
            lines.append(f"{heading(statistic)}: {written(statistic, reported)}")
    return "<br>".join([*lines, *_samples(cell, list(mine.values()))])


def _of_cell(cell: Cell, entries: Sequence[Entry]) -> dict[str, Entry]:
    """By statistic."""
    return {e.statistic: e for e in entries if (e.row, e.column) == (cell.row, cell.column)}


def _is_partly_measured(cell: Cell, entries: Sequence[Entry]) -> bool:
    """True if the measured run did not keep some figure that the paper has."""
    mine = _of_cell(cell, entries)
    return bool(mine) and any(r is not None and s not in mine for s, r in cell.reported.items())


def _samples(cell: Cell, mine: Sequence[Entry]) -> list[str]:
    """The sample behind the figures: one line for all of them, or one for each sample."""
    groups: dict[str, list[str]] = {}
    for e in mine:
        sample = f"n = {e.trials}{cell.run.sample}" + (f", {e.failed} failed" if e.failed else "")
        sample += f"; {e.state}" if e.state not in ("", "untrained") else ""
        groups.setdefault(sample, []).append(heading(e.statistic))
    if len(groups) < 2:
        return list(groups)
    return [f"{sample} ({', '.join(names)})" for sample, names in groups.items()]
