"""`leakgauge lab reidentify RUN`: who can be recognised on the pictures that a finished run recovered?"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from leakgauge.cli import options
from leakgauge.cli.console import say, show, show_json, show_table
from leakgauge.cli.options import Place, flag, flags_from
from leakgauge.cli.running import interval
from leakgauge.errors import BadInput
from leakgauge.execution.store import Store
from leakgauge.lab.identification import STEPS
from leakgauge.lab.reidentification import FinishedRun, ReidentificationReport
from leakgauge.lab.reidentification import reidentify as reidentify_runs
from leakgauge.reading.files import make_folder, regular, write_whole
from leakgauge.report import from_json
from leakgauge.types import Interval, Rate

FILE = "reidentification.json"


@dataclass(frozen=True, kw_only=True)
class ReidentifyFlags(Place):
    """The options of `leakgauge lab reidentify`."""

    folders: Annotated[
        list[Path],
        typer.Argument(help="Folders of runs on the same data, as printed by audit or attack.", show_default=False),
    ]
    steps: int = flag("Training steps of the classifier.", default=STEPS)
    seed: int = flag("Seed of the classifier.", default=0)
    out: Path | None = flag(f"Folder for {FILE}. Default: that of the first run.")
    as_json: options.JSON = False


@flags_from(ReidentifyFlags)
def reidentify(given: ReidentifyFlags) -> int:
    """Train a classifier of people on public pictures and ask it who is on the recovered ones: top-1, 3 and 5.

    Example: `leakgauge lab reidentify faces` after `leakgauge attack cpl --data lfw --out faces --keep-private`
    """
    runs = [_read(folder) for folder in given.folders]
    folder = given.out or given.folders[0]
    make_folder(folder)
    report = reidentify_runs(
        runs, seed=given.seed, steps=given.steps, data_root=given.data_root, device=given.device, notice=say
    )
    write_whole(folder / FILE, json.dumps(report.as_dict(), indent=2, allow_nan=False).encode())
    if given.as_json:
        show_json(report.as_dict())
    else:
        _show(report)
    say(f"written: {folder / FILE}")
    return 0


def _read(folder: Path) -> FinishedRun:
    try:
        report = from_json(regular(folder / "report.json").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"run {str(folder)!r}",
            allowed="a folder with report.json",
            got=getattr(error, "strerror", None) or str(error),
            do="give the folder that audit printed",
        ) from error
    pictures = Store(folder, make=False, notice=partial(_refuse, folder)).pictures(report.setup)
    if pictures is None or not pictures.recovered:
        raise BadInput(
            f"run {str(folder)!r}",
            allowed="a folder that still has its pictures",
            got="none",
            do="run it again with the same --out and --keep-private; what is finished is reused",
        )
    return FinishedRun(str(folder), report, pictures)


def _refuse(folder: Path, damage: str) -> None:
    """Missing pictures would count as people who were not recognised."""
    raise BadInput(
        f"run {str(folder)!r}",
        allowed="a folder with all of its pictures",
        got=damage,
        do="run it again with the same --out and --keep-private; what is finished is reused",
    )


def _show(report: ReidentificationReport) -> None:
    several = len({row.run for row in report.rows}) > 1
    rows = [
        [
            *([row.run] if several else []),
            row.attack,
            row.defense,
            "adaptive" if row.adaptive else "plain",
            str(row.hits["top_1"].records),
            str(row.failed),
            *(_share(rate) for rate in row.hits.values()),
        ]
        for row in report.rows
    ]
    rows.append([*([""] if several else []), "chance", "", "", "", "", *(f"{c:.2f}" for c in report.chance.values())])
    top = [f"{name.replace('_', '-')} [95 %]" for name in report.chance]
    show_table([*(["run"] if several else []), "attack", "defense", "attacker", "records", "failed", *top], rows)
    trained, right = report.classifier, report.held_out["top_1"]
    show("")
    show(
        f"The classifier knows {report.people} classes of {report.data!r} from {trained['training_samples']} public "
        f"pictures and names {_share(right)} of {right.records} others right at once. "
        "Every record counts; failed ones are misses."
    )
    if report.data.partition(":")[0] != "lfw":
        show("The label is the identity here: unless the classes are people, this is how well the class is recognised.")


def _share(rate: Rate) -> str:
    return interval(Interval(rate.value, rate.low, rate.high), 2)
