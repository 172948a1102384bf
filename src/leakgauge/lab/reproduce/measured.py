"""`measured.json`: one entry per statistic of each cell, the paper's figure beside ours."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from leakgauge.errors import BadInput, Unreadable
from leakgauge.lab.reproduce.figures import compute_figure
from leakgauge.lab.reproduce.recipe import Cell, Recipe, Study, Table
from leakgauge.lab.reproduce.running import figures_of, findings_of, results_of
from leakgauge.lab.reproduce.statistics import compute, is_failed
from leakgauge.reading.files import read_json, write_whole
from leakgauge.types import Interval

FILE = "measured.json"
_ORIGIN = {"device": "device", "version": "leakgauge", "commit": "commit", "state": "model state"}  # field -> its key
_TYPES: Mapping[Any, Any] = {  # as `Entry` declares them
    "str": str,
    "int": int,
    "float": (int, float),
    "float | None": (int, float, type(None)),
}


@dataclass(frozen=True)
class Entry:
    """One figure: its place, the reported value, the measured value and its sample."""

    table: str
    row: str
    column: str
    statistic: str
    reported: float | None
    value: float | None  # None: measured, but nothing to average, such as the iterations of no success
    low: float | None
    high: float | None
    trials: int  # victims, or the size of a measurement: rounds of training, say
    failed: int  # of the trials, diverged
    seconds: float  # of the attack, all trials together; of a measurement the whole
    device: str
    version: str
    commit: str
    seed: int  # the first base seed
    seeds: int  # base seeds pooled
    state: str  # of the model that was attacked, per base seed: untrained, or after so many rounds

    @property
    def place(self) -> tuple[str, str, str, str]:
        return self.table, self.row, self.column, self.statistic


def entries_of(tables: Iterable[Table], runs: Path) -> list[Entry]:
    """The entries of every cell whose runs are all finished."""
    return [entry for table in tables for cell in table.cells for entry in _entries(table, cell, runs)]


def _entries(table: Table, cell: Cell, runs: Path) -> list[Entry]:
    run, results = cell.run, results_of(cell.run, runs)
    if results is None:
        return []
    origin: dict[str, Any] = {  # each value once
        name: "; ".join(dict.fromkeys(r.environment[key] for r in results)) for name, key in _ORIGIN.items()
    } | {"seeds": run.seeds}
    found: Callable[[str], Interval]
    if isinstance(run, Study):
        found = partial(compute_figure, figures=figures_of(results))
        trials, failed, seconds, seed = run.size, 0, sum(r.seconds for r in results), run.measurement.seed
    else:
        findings = findings_of(cell, results)
        if not findings:
            return []
        found = partial(compute, findings=findings)
        trials, failed, seconds = len(findings), sum(map(is_failed, findings)), sum(f.seconds for f in findings)
        seed = run.scenario.seed
    sample: dict[str, Any] = {"trials": trials, "failed": failed, "seconds": round(seconds, 2), "seed": seed}
    return [
        Entry(table.id, cell.row, cell.column, name, reported, **asdict(found(name)), **sample, **origin)
        for name, reported in cell.reported.items()
    ]


def without_measured(tables: Iterable[Table], known: Iterable[Entry]) -> tuple[Table, ...]:
    """The tables without the cells whose figures are all known from a sample of that size or larger."""
    sizes = {entry.place: entry.trials for entry in known}
    left = []
    for table in tables:
        cells = tuple(cell for cell in table.cells if not _is_measured(table, cell, sizes))
        if cells:
            left.append(dataclasses.replace(table, cells=cells))
    return tuple(left)


def _is_measured(table: Table, cell: Cell, sizes: Mapping[tuple[str, str, str, str], int]) -> bool:
    wanted = cell.run.size if isinstance(cell.run, Study) else cell.run.victims
    return all(sizes.get((table.id, cell.row, cell.column, name), 0) >= wanted for name in cell.reported)


def merged(old: Iterable[Entry], new: Iterable[Entry], recipe: Recipe) -> list[Entry]:
    """New entries over old ones, in the recipe's order; places the recipe no longer has are dropped.

    A smaller sample, as of `--quick`, does not replace a larger one. The paper's figure is taken from the recipe.
    """
    kept = {entry.place: entry for entry in old}
    for entry in new:
        before = kept.get(entry.place)
        if before is None or entry.trials >= before.trials:
            kept[entry.place] = entry
    order = [
        ((table.id, cell.row, cell.column, statistic), reported)
        for table in recipe.tables
        for cell in table.cells
        for statistic, reported in cell.reported.items()
    ]
    return [dataclasses.replace(kept[place], reported=reported) for place, reported in order if place in kept]


def read(folder: Path) -> list[Entry]:
    """The entries of `folder`; none if it has no such file."""
    path = folder / FILE
    if not path.is_file():
        return []
    try:
        cells: list[dict[str, Any]] = read_json(path)["cells"]
        entries = [Entry(**cell) for cell in cells]
        if not all(isinstance(value, _TYPES[field.type]) for e in entries for field, value in _values(e)):
            raise TypeError("a value of another kind")
        return entries
    except (Unreadable, LookupError, TypeError) as error:
        raise BadInput(
            str(path),
            allowed="written by leakgauge lab reproduce",
            got=str(error),
            do="delete it or choose another --out",
        ) from error


def _values(entry: Entry) -> Iterator[tuple[dataclasses.Field[Any], Any]]:
    return ((field, getattr(entry, field.name)) for field in dataclasses.fields(entry))


def write(folder: Path, recipe: Recipe, entries: Sequence[Entry]) -> None:
    write_whole(folder / FILE, text_of(recipe, entries).encode())


def text_of(recipe: Recipe, entries: Sequence[Entry]) -> str:
    plain = {"recipe": recipe.name, "cells": [asdict(e) for e in entries]}
    return json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
