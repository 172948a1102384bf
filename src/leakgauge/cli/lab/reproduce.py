"""`leakgauge lab reproduce`: a paper's tables, reported beside measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from leakgauge.cli import options
from leakgauge.cli.console import say, show, show_json, show_table, watching
from leakgauge.cli.running import RUNS, executing
from leakgauge.errors import BadInput
from leakgauge.execution.locks import claimed
from leakgauge.lab.recipes import get
from leakgauge.lab.reproduce import distribution, exposed, measured, rendering
from leakgauge.lab.reproduce.budget import Budget
from leakgauge.lab.reproduce.queue_file import Entry, read_queue
from leakgauge.lab.reproduce.recipe import Cell, Recipe, Run, Table, chosen, most_evaluations, pieces_of, scenarios_of
from leakgauge.lab.reproduce.running import Job, describe, load, run_jobs
from leakgauge.lab.reproduce.statistics import heading, written
from leakgauge.reading.files import make_folder


def reproduce(
    recipe: Annotated[
        str | None, typer.Argument(help="Its name; see 'leakgauge list recipes'.", show_default=False)
    ] = None,
    table: Annotated[str | None, typer.Option("--table", help="Only this table: 2.")] = None,
    cell: Annotated[
        str | None, typer.Option("--cell", help="Only cells whose 'table | row | column' fits: '2 | * | MNIST'.")
    ] = None,
    queue: Annotated[
        Path | None,
        typer.Option("--queue", help="Instead of a recipe: a file of lines 'RECIPE | table | row | column', in order."),
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
    missing: Annotated[
        bool, typer.Option("--missing", help="Leave out cells that --out has, measured on as many victims or rounds.")
    ] = False,
    time_budget: Annotated[
        float | None, typer.Option("--time-budget", help="Seconds after which nothing new is started.")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="Show the cells and what they cost; run nothing.")] = False,
    render: Annotated[
        bool, typer.Option("--render", help="Write the tables anew from measured.json and finished runs; run nothing.")
    ] = False,
    runs: Annotated[
        Path | None,
        typer.Option(
            "--runs", help="Folder of finished runs. Default leakgauge-runs/RECIPE/runs; see docs for --queue."
        ),
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
    if time_budget is not None and not 0 < time_budget < float("inf"):
        raise BadInput("--time-budget", allowed="a number of seconds above 0", got=time_budget, do="leave it out")
    if queue is not None:
        _refuse_beside_queue(
            recipe=recipe, table=table, cell=cell, quick=quick, trials=trials, size=size, seeds=seeds, render=render
        )
        shares = _shares_of(read_queue(queue), runs or RUNS, out or RUNS)
    elif recipe is None:
        raise BadInput("recipe", allowed="the name of one", got="nothing", do="see 'leakgauge list recipes'")
    else:
        book = get(recipe)
        tables = chosen(book, table, cell, quick, trials, seeds, size)
        shares = (_Share(book, tables, runs or RUNS / book.name / "runs", out or RUNS / book.name),)
    if listed and render:
        raise BadInput("--list", allowed="used without --render", got="both", do="leave one out")
    if missing:
        shares = _only_missing(shares)
    if listed:
        return _list(shares, as_json, in_queue=queue is not None)
    if render:
        if fresh:
            raise BadInput("--render", allowed="used without --fresh", got="both", do="--render runs nothing")
        return _render(shares[0], as_json)
    return _run(
        shares,
        device=device,
        data_root=data_root,
        fresh=fresh,
        on=on,
        gpus_per_task=gpus_per_task,
        budget=None if time_budget is None else Budget(time_budget),
        as_json=as_json,
        in_queue=queue is not None,
    )


@dataclass(frozen=True)
class _Share:
    """The chosen tables of one recipe, and its folders. A queue may name the same recipe several times."""

    book: Recipe
    tables: tuple[Table, ...]
    runs: Path
    out: Path

    @property
    def jobs(self) -> tuple[Job, ...]:
        return tuple((piece, self.runs) for piece in pieces_of(self.tables))


def _refuse_beside_queue(**given: Any) -> None:
    for name, value in given.items():
        if value:
            raise BadInput(
                "--queue",
                allowed="used without a recipe and what chooses among its cells",
                got="a recipe's name" if name == "recipe" else f"--{name}",
                do="write it into the queue's lines",
            )


def _shares_of(entries: Sequence[Entry], runs: Path, out: Path) -> tuple[_Share, ...]:
    """One share for each line of a queue; every recipe has its own folder in both folders."""
    return tuple(_Share(e.recipe, e.tables, runs / e.recipe.name / "runs", out / e.recipe.name) for e in entries)


def _only_missing(shares: Sequence[_Share]) -> tuple[_Share, ...]:
    known = {share.out: measured.read(share.out) for share in shares}
    return tuple(
        dataclasses.replace(share, tables=measured.without_measured(share.tables, known[share.out])) for share in shares
    )


def _render(share: _Share, as_json: bool) -> int:
    book, tables, kept, folder = share.book, share.tables, share.runs, share.out
    _write(book, folder, measured.entries_of(book.tables, kept), tables, kept)
    if not (known := measured.read(folder)):
        raise BadInput(
            "--render",
            allowed=f"used where something of {book.name} was measured",
            got=f"nothing in {str(folder)!r}, and no finished run of full size in {str(kept)!r}",
            do="name the folder by --out; runs of --quick or --trials are shown by the same command again",
        )
    return _show_results([(share, known)], {}, 0, as_json, in_queue=False)


def _run(
    shares: Sequence[_Share],
    *,
    device: str,
    data_root: Path | None,
    fresh: bool,
    on: str | None,
    gpus_per_task: float | None,
    budget: Budget | None,
    as_json: bool,
    in_queue: bool,
) -> int:
    """Run every piece in order, then write measured.json and the page of each recipe."""
    jobs = tuple(dict.fromkeys(job for share in shares for job in share.jobs))
    if not jobs:
        say("leakgauge: nothing to run: --out has all of these cells")
        _show_results([(share, ()) for share in shares], {}, 0, as_json, in_queue)
        return 0
    for share in shares:
        make_folder(share.out)
    waiting = [
        (share, table, set(_Share(share.book, (table,), share.runs, share.out).jobs))
        for share in shares
        for table in share.tables
    ]

    def show_finished(job: Job) -> None:
        """Print the tables that waited for this piece only."""
        for share, table, left in waiting:
            if job in left:
                left.remove(job)
                if not left and not as_json:
                    show_entries(table, measured.entries_of([table], share.runs))

    refused: dict[str, int] = {}
    interrupted = False
    try:
        places = options.Places(device=device, data_root=data_root, on=on, gpus_per_task=gpus_per_task)
        with executing(places) as executor, watching() as watch:
            not_run = run_jobs(
                jobs,
                device=device,
                data_root=data_root,
                fresh=fresh,
                executor=executor,
                watch=watch,
                finished=show_finished,
                notice=say,
                budget=budget,
            )
        for reason in not_run.values():
            refused[reason] = refused.get(reason, 0) + 1
    except KeyboardInterrupt:
        interrupted = True
    found = [(share, measured.entries_of(share.tables, share.runs)) for share in shares]
    for first in {share.out: share for share in reversed(shares)}.values():  # the page of a recipe is written once
        own = [(share, entries) for share, entries in found if share.out == first.out]
        new = [*measured.entries_of(first.book.tables, first.runs), *(e for _, entries in own for e in entries)]
        _write(first.book, first.out, new, [table for share, _ in own for table in share.tables], first.runs)
    code = _show_results(found, refused, 0 if budget is None else budget.left, as_json, in_queue)
    if interrupted:
        say("leakgauge: interrupted; finished runs are kept, the same command goes on from there")
    return 130 if interrupted else code


def show_entries(table: Table, entries: Sequence[measured.Entry]) -> None:
    """Print one line per figure; nothing for a table without finished cells."""
    if not entries:
        return
    show(f"{table.heading}: {table.title}")
    rows = [
        [
            e.row,
            e.column,
            heading(e.statistic),
            written(e.statistic, e.reported),
            written(e.statistic, e.value) + rendering.bounds(e),
            str(e.trials),
        ]
        for e in entries
    ]
    show_table(["row", "column", "statistic", "reported", "measured [95 %]", "n"], rows)
    show("")


def _write(book: Recipe, folder: Path, new: Sequence[measured.Entry], asked: Sequence[Table], runs: Path) -> None:
    """Write the page; the file is read again under a lock, so that cells of other processes are kept."""
    if not new and not folder.is_dir():
        return
    make_folder(folder)
    with claimed(folder / measured.FILE, wait=True, notice=say):
        entries = measured.merged(measured.read(folder), new, book)
        if entries:
            measured.write(folder, book, entries)
            rendering.write(folder, book, entries)
            distribution.write(folder, book, entries)
            exposed.write(folder, book, asked, entries, runs)


def _show_results(
    found: Sequence[tuple[_Share, Sequence[measured.Entry]]],
    refused: dict[str, int],
    not_started: int,
    as_json: bool,
    in_queue: bool,
) -> int:
    """Print the results, what could not run and what was not started; 2 if there is no result though time was left."""
    for reason, count in refused.items():
        say(f"leakgauge: {_runs(count)} left out: {' '.join(reason.split())}")
    if not_started:
        say(f"leakgauge: {_runs(not_started)} left for lack of time; the same command goes on from there")
    some = any(entries for _, entries in found)
    if not some and not refused and not not_started and any(share.tables for share, _ in found):
        say("leakgauge: no finished run could be read back; check the disk, and give the same command again")
    if as_json:
        rest = {
            "left_out": [{"reason": reason, "runs": count} for reason, count in refused.items()],
            "left_for_want_of_time": not_started,
        }
        parts = [
            {"recipe": share.book.name, "cells": [dataclasses.asdict(entry) for entry in entries]}
            for share, entries in found
        ]
        show_json({"recipes": parts, **rest} if in_queue else {**parts[0], **rest})
    else:
        for folder in dict.fromkeys(share.out for share, entries in found if entries):
            show(f"Written: {folder / measured.FILE} and {folder / rendering.FILE}")
    return 0 if some or not_started else 2


def _runs(count: int) -> str:
    return f"{count} {'run' if count == 1 else 'runs'}"


def _list(shares: Sequence[_Share], as_json: bool, in_queue: bool) -> int:
    """Every cell, and what they cost: table by table, and all together (tables share runs)."""
    if not as_json:
        for share in shares:
            if in_queue:
                show(share.book.name)
            _list_one(share)
        return 0
    parts = [
        {
            "recipe": share.book.name,
            "cost": _costs(share),
            "cells": [{"cell": each.name_of(one), **_plain(one)} for each in share.tables for one in each.cells],
        }
        for share in shares
    ]
    show_json({"recipes": parts} if in_queue else parts[0])
    return 0


def _costs(share: _Share) -> dict[str, dict[str, int]]:
    return {each.id: _cost([each], share.runs) for each in share.tables} | {"all": _cost(share.tables, share.runs)}


def _list_one(share: _Share) -> None:
    cells, costs = [(each, one) for each in share.tables for one in each.cells], _costs(share)
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
