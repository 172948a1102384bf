"""`leakgauge lab reproduce`: a paper's tables, reported beside measured."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from leakgauge.cli import options
from leakgauge.cli.console import say, show, show_json, show_table, watching
from leakgauge.cli.options import Place, flag, flags_from
from leakgauge.cli.running import RUNS, executing
from leakgauge.errors import BadInput
from leakgauge.execution.locks import claimed
from leakgauge.lab.recipes import get
from leakgauge.lab.reproduce import distribution, exposed, measured, rendering
from leakgauge.lab.reproduce.budget import Budget
from leakgauge.lab.reproduce.queue_file import read_queue
from leakgauge.lab.reproduce.recipe import Cell, Recipe, Run, Table, chosen, most_evaluations, pieces_of, scenarios_of
from leakgauge.lab.reproduce.running import Job, describe, load, run_jobs
from leakgauge.lab.reproduce.statistics import heading, written
from leakgauge.reading.files import make_folder


@dataclass(frozen=True, kw_only=True)
class ReproduceFlags(Place):
    """The options of `leakgauge lab reproduce`."""

    recipe: Annotated[
        str | None, typer.Argument(help="Its name; see 'leakgauge list recipes'.", show_default=False)
    ] = None
    table: str | None = flag("Only this table: 2.")
    cell: str | None = flag("Only cells whose 'table | row | column' fits: '2 | * | MNIST'.")
    queue: Path | None = flag("Instead of a recipe: a file of lines 'RECIPE | table | row | column', in order.")
    quick: bool = flag("A few victims of the smallest cells: a minute or so.", default=False)
    trials: int | None = flag("Victims per seed, for every cell.", min=1)
    size: int | None = flag("For cells without victims: the rounds, or whatever else they count.", min=1)
    seeds: int | None = flag("Base seeds that are pooled.", min=1)
    missing: bool = flag("Leave out cells that --out has, measured on as many victims or rounds.", default=False)
    time_budget: float | None = flag("Seconds after which nothing new is started.")
    listed: bool = flag("Show the cells and what they cost; run nothing.", "--list", default=False)
    render: bool = flag("Write the tables anew from measured.json and finished runs; run nothing.", default=False)
    runs: Path | None = flag("Folder of finished runs. Default leakgauge-runs/RECIPE/runs; see docs for --queue.")
    out: Path | None = flag("Folder for measured.json and README.md. Default leakgauge-runs/RECIPE.")
    fresh: bool = flag("Run everything anew, also what is in --runs.", default=False)
    on: options.ON = None
    gpus_per_task: options.GPUS_PER_TASK = None
    as_json: options.JSON = False

    @property
    def in_queue(self) -> bool:
        return self.queue is not None


@flags_from(ReproduceFlags)
def reproduce(given: ReproduceFlags) -> int:
    """Measure a paper's tables again: its figure stands beside ours.

    Example: `leakgauge lab reproduce wei2020cpl --quick`
    """
    seconds = given.time_budget
    if seconds is not None and not 0 < seconds < float("inf"):
        raise BadInput("--time-budget", allowed="a number of seconds above 0", got=seconds, do="leave it out")
    shares = _chosen_shares(given)
    if given.listed and given.render:
        raise BadInput("--list", allowed="used without --render", got="both", do="leave one out")
    if given.missing:
        shares = _only_missing(shares)
    if given.listed:
        return _list(shares, given.as_json, given.in_queue)
    if given.render:
        if given.fresh:
            raise BadInput("--render", allowed="used without --fresh", got="both", do="--render runs nothing")
        return _render(shares[0], given.as_json)
    return _run(shares, given)


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


def _chosen_shares(given: ReproduceFlags) -> tuple[_Share, ...]:
    runs, out = given.runs or RUNS, given.out or RUNS
    if given.queue is not None:
        _refuse_beside_queue(given)
        # In both folders every recipe has its own folder.
        entries = read_queue(given.queue)
        return tuple(_Share(e.recipe, e.tables, runs / e.recipe.name / "runs", out / e.recipe.name) for e in entries)
    if given.recipe is None:
        raise BadInput("recipe", allowed="the name of one", got="nothing", do="see 'leakgauge list recipes'")
    book = get(given.recipe)
    tables = chosen(book, given.table, given.cell, given.quick, given.trials, given.seeds, given.size)
    return (_Share(book, tables, given.runs or RUNS / book.name / "runs", given.out or RUNS / book.name),)


def _refuse_beside_queue(given: ReproduceFlags) -> None:
    for name in ("recipe", "table", "cell", "quick", "trials", "size", "seeds", "render"):
        if getattr(given, name):
            raise BadInput(
                "--queue",
                allowed="used without a recipe and what chooses among its cells",
                got="a recipe's name" if name == "recipe" else f"--{name}",
                do="write it into the queue's lines",
            )


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


def _run(shares: Sequence[_Share], given: ReproduceFlags) -> int:
    """Run every piece in order, then write measured.json and the page of each recipe."""
    jobs = tuple(dict.fromkeys(job for share in shares for job in share.jobs))
    if not jobs:
        say("leakgauge: nothing to run: --out has all of these cells")
        _show_results([(share, ()) for share in shares], {}, 0, given.as_json, given.in_queue)
        return 0
    for share in shares:
        make_folder(share.out)
    budget = None if given.time_budget is None else Budget(given.time_budget)
    refused: Counter[str] = Counter()
    interrupted = False
    try:
        places = options.Places(
            device=given.device, data_root=given.data_root, on=given.on, gpus_per_task=given.gpus_per_task
        )
        with executing(places) as executor, watching() as watch:
            not_run = run_jobs(
                jobs,
                device=given.device,
                data_root=given.data_root,
                fresh=given.fresh,
                executor=executor,
                watch=watch,
                finished=(lambda _: None) if given.as_json else _tables_shown_when_finished(shares),
                notice=say,
                budget=budget,
            )
        refused.update(not_run.values())
    except KeyboardInterrupt:
        interrupted = True
    found = _write_all(shares)
    code = _show_results(found, refused, 0 if budget is None else budget.left, given.as_json, given.in_queue)
    if interrupted:
        say("leakgauge: interrupted; finished runs are kept, the same command goes on from there")
    return 130 if interrupted else code


def _tables_shown_when_finished(shares: Sequence[_Share]) -> Callable[[Job], None]:
    """Prints a table as soon as the last of its pieces is finished."""
    waiting = [
        (share, table, set(_Share(share.book, (table,), share.runs, share.out).jobs))
        for share in shares
        for table in share.tables
    ]

    def show_finished(job: Job) -> None:
        for share, table, left in waiting:
            if job in left:
                left.remove(job)
                if not left:
                    show_entries(table, measured.entries_of([table], share.runs))

    return show_finished


def _write_all(shares: Sequence[_Share]) -> list[tuple[_Share, list[measured.Entry]]]:
    """What was found for each share; measured.json and the page of each recipe are written once."""
    found = [(share, measured.entries_of(share.tables, share.runs)) for share in shares]
    for first in {share.out: share for share in reversed(shares)}.values():
        own = [(share, entries) for share, entries in found if share.out == first.out]
        new = [*measured.entries_of(first.book.tables, first.runs), *(e for _, entries in own for e in entries)]
        _write(first.book, first.out, new, [table for share, _ in own for table in share.tables], first.runs)
    return found


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
    refused: Mapping[str, int],
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
