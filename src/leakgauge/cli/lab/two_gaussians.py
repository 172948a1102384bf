"""`leakgauge lab two-gaussians`: aggregators on a federation small enough to draw."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from leakgauge.cli import options
from leakgauge.cli.console import say, show, show_json, show_table, watching
from leakgauge.errors import BadInput
from leakgauge.lab.two_gaussians.cases import CASES
from leakgauge.lab.two_gaussians.comparing import AGGREGATORS, Study, compare
from leakgauge.lab.two_gaussians.drawing import boundaries
from leakgauge.lab.two_gaussians.training import Local
from leakgauge.reading.files import make_folder, write_whole
from leakgauge.types import Interval


def two_gaussians(
    case: Annotated[list[str] | None, typer.Option("--case", help=f"{', '.join(CASES)}; repeat. Default: all.")] = None,
    aggregator: Annotated[
        list[str] | None,
        typer.Option("--aggregator", help="NAME[:field=value,...] or centralised; repeat; the first is the reference."),
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", help="Federations of each kind.")] = 20,
    rounds: Annotated[int, typer.Option("--rounds", help="Rounds of training.")] = 10,
    samples: Annotated[int, typer.Option("--samples", help="Samples of each client.")] = 500,
    local: Annotated[
        str, typer.Option("--local", help="The clients' training: optimizer=adam,lr=0.003,batch_size=8,epochs=1.")
    ] = "",
    seed: options.SEED = None,
    device: Annotated[
        str, typer.Option("--device", help="auto or cpu: these networks are too small for a GPU.")
    ] = "auto",
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the numbers and the boundaries drawn.")] = None,
    as_json: options.JSON = False,
) -> None:
    """Compare aggregators where clients differ or one is poisoned, on two Gaussians, and draw decision boundaries.

    Example: `leakgauge lab two-gaussians --case narrow --seeds 5 --out toy`
    """
    cases, specs, first = case or list(CASES), aggregator or list(AGGREGATORS), 0 if seed is None else seed
    how = Local.from_text(local)
    if device not in ("auto", "cpu"):
        raise BadInput("--device", allowed="auto or cpu", got=repr(device), do="leave it out: this takes seconds")
    if out is not None:
        make_folder(out)
    with watching() as watch:
        study = compare(
            cases,
            specs,
            seeds=seeds,
            seed=first,
            rounds=rounds,
            samples=samples,
            local=how,
            watch=lambda n, of: watch(n, of, "training federations", 0.0),
        )
    if out is not None:
        write_whole(out / "two-gaussians.json", (json.dumps(study.as_dict(), indent=1) + "\n").encode())
        write_whole(out / "boundaries.svg", boundaries(cases, specs, first, rounds, samples, how))
    if as_json:
        show_json(study.as_dict())
    else:
        _show(study)
    if out is not None:
        for name in ("two-gaussians.json", "boundaries.svg"):
            say(f"written: {out / name}")


def _show(study: Study) -> None:
    rows = [
        [r.case, r.aggregator, _percent(r.accuracy), _percent(r.gain, sign="+"), _percent(r.ratio, scale=1, digits=2)]
        for r in study.rows
    ]
    show_table(["case", "aggregator", "accuracy, %", "gain, points", "first client's weight / the others'"], rows)
    show(f"{study.seeds} seeds from {study.first_seed}, {study.rounds} rounds, {study.samples} samples a client; means")
    show("with 95 % intervals over seeds. Where a client is poisoned it is the first one.")


def _percent(interval: Interval, scale: float = 100, digits: int = 1, sign: str = "") -> str:
    value = f"{scale * (interval.value or 0):{sign}.{digits}f}"
    if interval.low is None or interval.high is None:
        return value
    return f"{value} [{scale * interval.low:{sign}.{digits}f}, {scale * interval.high:{sign}.{digits}f}]"
