"""`leakgauge lab reproduce`: a paper's tables, reported beside measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from leakgauge.cli import options
from leakgauge.cli.console import say, show, show_json, show_table, watching
from leakgauge.cli.executing import executing
from leakgauge.cli.running import RUNS
from leakgauge.errors import BadInput
from leakgauge.execution.locks import claimed
from leakgauge.lab.recipes import _distribution, _exposed, _measured, _rendering, get
from leakgauge.lab.recipes._recipe import (
    Cell,
    Piece,
    Recipe,
    Run,
    Table,
    chosen,
    most_evaluations,
    pieces_of,
    scenarios_of,
)
from leakgauge.lab.recipes._running import describe, load, run_all
from leakgauge.lab.recipes._statistics import heading, written
from leakgauge.reading.files import make_folder


def reproduce(
    recipe: Annotated[str, typer.Argument(help="Its name; see 'leakgauge list recipes'.", show_default=False)],
    table: Annotated[str | None, typer.Option("--table", help="Only this table: 2.")] = None,
    cell: Annotated[
        str | None, typer.Option("--cell", help="Only cells whose 'table | row | column' fits: '2 | * | MNIST'.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A few victims of the smallest cells: a minute or so.")
    ] = False,
    trials: Annotated[int | None, typer.Option("--trials", min=1, help="Victims per seed, for every cell.")] = None,
    size: Annotated[
        int | None,
        typer.Option("--size", min=1, help="For cells without victims: the rounds, or whatever else they count."),
    ] = None,
    seeds: Annotated[int | None, typer.Option("--seeds", min=1, help="Base seeds that are pooled.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="Show the cells and what they cost; run nothing.")] = False,
    render: Annotated[
        bool, typer.Option("--render", help="Write the tables anew from measured.json and finished runs; run nothing.")
    ] = False,
    runs: Annotated[
        Path | None, typer.Option("--runs", help="Folder of finished runs. Default leakgauge-runs/RECIPE/runs.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for measured.json and README.md. Default leakgauge-runs/RECIPE."),
    ] = None,
    device: options.DEVICE = "auto",
    data_root: options.DATA_ROOT = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run everything anew, also what is in --runs.")] = False,
    on: options.ON = None,
    gpus_per_task: options.GPUS_PER_TASK = None,
    as_json: options.JSON = False,
) -> int:
    """Measure a paper's tables again: its figure stands beside ours.

    Example: `leakgauge lab reproduce wei2020cpl --quick`
    """
    book = get(recipe)
    tables = chosen(book, table, cell, quick, trials, seeds, size)
    kept = runs or RUNS / book.name / "runs"
    folder = out or RUNS / book.name
    if listed and render:
        raise BadInput("--list", allowed="used without --render", got="both", do="leave one out")
    if listed:
        return _list(book, tables, kept, as_json)
    if render:
        if fresh:
            raise BadInput("--render", allowed="used without --fresh", got="both", do="--render runs nothing")
        _write(book, folder, _measured.entries_of(book.tables, kept), tables, kept)
        if not (known := _measured.read(folder)):
            raise BadInput(
                "--render",
                allowed=f"used where something of {book.name} was measured",
                got=f"nothing in {str(folder)!r}, and no finished run of full size in {str(kept)!r}",
                do="name the folder by --out; runs of --quick or --trials are shown by the same command again",
            )
        return _tell(book, folder, known, {}, as_json)
    make_folder(folder)
    waiting = {each.id: set(pieces_of([each])) for each in tables}

    def tell_finished(piece: Piece) -> None:
        """Print the tables that waited for this piece only."""
        for each in tables:
            if piece in waiting[each.id]:
                waiting[each.id].remove(piece)
                if not waiting[each.id] and not as_json:
                    show_entries(each, _measured.entries_of([each], kept))

    refused: dict[str, int] = {}
    interrupted = False
    try:
        with (
            executing(device=device, data_root=data_root, on=on, gpus_per_task=gpus_per_task) as executor,
            watching() as watch,
        ):
            missing = run_all(
                pieces_of(tables),
                kept,
                device=device,
                data_root=data_root,
                fresh=fresh,
                executor=executor,
                watch=watch,
                finished=tell_finished,
                notice=say,
            )
        for reason in missing.values():
            refused[reason] = refused.get(reason, 0) + 1
    except KeyboardInterrupt:
        interrupted = True
    found = _measured.entries_of(tables, kept)
    _write(book, folder, [*_measured.entries_of(book.tables, kept), *found], tables, kept)
    code = _tell(book, folder, found, refused, as_json)
    if interrupted:
        say("leakgauge: interrupted; finished runs are kept, the same command goes on from there")
    return 130 if interrupted else code


def show_entries(table: Table, entries: Sequence[_measured.Entry]) -> None:
    """One line per figure on stdout; nothing for a table none of whose cells could run."""
    if not entries:
        return
    show(f"{table.heading}: {table.title}")
    rows = [
        [
            e.row,
            e.column,
            heading(e.statistic),
            written(e.statistic, e.reported),
            written(e.statistic, e.value) + _rendering.bounds(e),
            str(e.trials),
        ]
        for e in entries
    ]
    show_table(["row", "column", "statistic", "reported", "measured [95 %]", "n"], rows)
    show("")


def _write(book: Recipe, folder: Path, new: Sequence[_measured.Entry], asked: Sequence[Table], runs: Path) -> None:
    """Read again just before writing, one process at a time, so that the cells of others are kept."""
    if not new and not folder.is_dir():
        return
    make_folder(folder)
    with claimed(folder / _measured.FILE, wait=True, notice=say):
        entries = _measured.merged(_measured.read(folder), new, book)
        if entries:
            _measured.write(folder, book, entries)
            _rendering.write(folder, book, entries)
            _distribution.write(folder, book, entries)
            _exposed.write(folder, book, asked, entries, runs)


def _tell(book: Recipe, folder: Path, found: Sequence[_measured.Entry], refused: dict[str, int], as_json: bool) -> int:
    """What came out and what could not be run; 2 if nothing could."""
    for reason, count in refused.items():
        say(f"leakgauge: {count} {'run' if count == 1 else 'runs'} left out: {' '.join(reason.split())}")
    if not found and not refused:
        say("leakgauge: no finished run could be read back; check the disk, and give the same command again")
    if as_json:
        show_json(
            {
                "recipe": book.name,
                "cells": [dataclasses.asdict(entry) for entry in found],
                "left_out": [{"reason": reason, "runs": count} for reason, count in refused.items()],
            }
        )
    elif found:
        show(f"Written: {folder / _measured.FILE} and {folder / _rendering.FILE}")
    return 0 if found else 2


def _list(book: Recipe, tables: Sequence[Table], runs: Path, as_json: bool) -> int:
    """Every cell, and what they cost: table by table, and all together (tables share runs)."""
    cells = [(each, one) for each in tables for one in each.cells]
    costs = {each.id: _cost([each], runs) for each in tables} | {"all": _cost(tables, runs)}
    if as_json:
        rows = [{"cell": each.name_of(one), **_plain(one)} for each, one in cells]
        show_json({"recipe": book.name, "cost": costs, "cells": rows})
        return 0
    show_table(
        ["table | row | column", "what runs", "quick"],
        [[each.name_of(one), describe(one.run.pieces[0]), str(one.quick or "")] for each, one in cells],
    )
    show("")
    show_table(
        ["table", "cells", "runs", "finished", "victims", "gradient evaluations at most"],
        [
            [name, *(str(cost[key]) for key in ("cells", "runs", "finished", "victims")), f"{cost['evaluations']:,}"]
            for name, cost in costs.items()
        ],
    )
    if any(cost["victims"] for cost in costs.values()):
        show("Most victims are solved long before their steps are spent.")
    if any(not isinstance(one.run, Run) for _, one in cells):
        show("Cells without victims, such as trainings, are counted as runs alone: what one costs stands in its line.")
    return 0


def _plain(cell: Cell) -> dict[str, Any]:
    """A cell as JSON; one without victims has its measurement in place of a scenario."""
    run = cell.run
    if isinstance(run, Run):
        what: dict[str, Any] = {"victims": run.victims, "variant": cell.variant, "scenario": run.scenario.as_dict()}
    else:
        what = {"victims": 0, "measurement": run.measurement.as_dict()}
    return what | {"runs": run.seeds, "quick": bool(cell.quick), "reported": dict(cell.reported)}


def _cost(tables: Sequence[Table], runs: Path) -> dict[str, int]:
    pieces, scenarios = pieces_of(tables), scenarios_of(tables)
    return {
        "cells": sum(len(each.cells) for each in tables),
        "runs": len(pieces),
        "finished": sum(load(p, runs) is not None for p in pieces),
        "victims": sum(s.trials for s in scenarios),
        "evaluations": sum(most_evaluations(s) for s in scenarios),
    }
