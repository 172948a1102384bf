"""`leakgauge bench`: victim-steps per second on this machine, the engine beside the loop."""

from __future__ import annotations

from typing import Annotated

import torch
import typer

from leakgauge.audit.bench import CASES, check, measure
from leakgauge.cli import options
from leakgauge.cli.console import say, show, show_json, show_table
from leakgauge.lab.growth import measure_growth, points
from leakgauge.lab.solving import measure_solving
from leakgauge.settings import unknown_name
from leakgauge.setup.setup import environment, pick_device


def bench(
    models: Annotated[
        str | None,
        typer.Option("--models", help="Which to time: 'lenet-dlg convnet resnet20-4 resnet18'. Default: all."),
    ] = None,
    victims: Annotated[
        int | None, typer.Option("--victims", help="Side by side. Default: fits the model and device.")
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", help="About how long each way is timed.")] = 3.0,
    precision: Annotated[
        str, typer.Option("--precision", help="float32, float64, or tf32 products on a GPU.")
    ] = "float32",
    solving: Annotated[
        bool, typer.Option("--solving", help="Time instead how soon 100 victims (or --victims) are solved by CPL.")
    ] = False,
    growth: Annotated[
        bool,
        typer.Option("--growth", help="Time instead more victims, larger networks, batches and pictures, with memory."),
    ] = False,
    loop_victims: Annotated[
        int, typer.Option("--loop-victims", help="With --solving: how many the loop is timed on.")
    ] = 8,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of models and samples.")] = 0,
    device: options.DEVICE = "auto",
    as_json: options.JSON = False,
) -> None:
    """Time gradient matching: all victims side by side, and one after another as published code runs them.

    Example: `leakgauge bench --models lenet-dlg --victims 20`
    """
    known = {case.model: case for case in CASES}
    names = models.split() if models is not None else list(known)
    for name in names:
        if name not in known:
            raise unknown_name("model to time", name, known)
    check(seconds, victims)
    where = pick_device(device)
    if solving:
        row = measure_solving(where, victims or 100, loop_victims, seed)
        _show_solving(row.as_dict(), environment(where), as_json)
        return
    if growth:
        _show_growth(where, seconds, precision, seed, as_json)
        return
    rows = []
    for name in names:
        say(f"timing {name} ...")
        rows.append(measure(known[name], where, seconds, victims, precision, seed))
    if as_json:
        show_json({"rows": [row.as_dict() for row in rows], "environment": environment(where)})
        return
    columns = ["model", "victims", "device", "precision", "loop /s", "engine /s", "engine / loop"]
    shown = [
        [r.model, str(r.victims), r.device, r.precision, f"{r.loop:.1f}", f"{r.engine:.1f}", f"{r.ratio:.2f}"]
        for r in rows
    ]
    show_table(columns, shown)
    show("victim-steps per second; the ratio is what carries over to other machines")


def _show_growth(where: torch.device, seconds: float, precision: str, seed: int, as_json: bool) -> None:
    rows = []
    for point in points(where):
        say(f"timing {point.model}: {point.victims} victims, batches of {point.batch}, {point.side} px ...")
        rows.append(measure_growth(point, where, seconds, precision, seed))
    if as_json:
        show_json({"rows": [row.as_dict() for row in rows], "environment": environment(where)})
        return
    show_table(
        ["grows", "model", "parameters", "victims", "batch", "side", "victim-steps /s", "MB a victim"],
        [
            [
                r.grows,
                r.model,
                f"{r.parameters:,}",
                str(r.victims),
                str(r.batch),
                str(r.side),
                "no room" if r.steps_per_second is None else f"{r.steps_per_second:,.1f}",
                "" if r.bytes_per_victim is None else f"{r.bytes_per_victim / 1e6:,.1f}",
            ]
            for r in rows
        ],
    )
    show("all victims of a row at once; an audit takes as many at once as fit")


def _show_solving(row: dict[str, str | int | float], where: dict[str, str], as_json: bool) -> None:
    if as_json:
        show_json({"solving": row, "environment": where})
        return
    show_table(
        ["model", "victims", "device", "loop s", "engine s", "sooner", "solved by loop", "by engine"],
        [
            [
                str(row["model"]),
                str(row["victims"]),
                str(row["device"]),
                f"{row['loop_seconds']:.0f}",
                f"{row['engine_seconds']:.1f}",
                f"{row['sooner']:.1f} x",
                f"{row['loop_solved']} of {row['loop_victims']}",
                f"{row['engine_solved']} of {row['victims']}",
            ]
        ],
    )
    show("the loop is timed on a few victims and scaled to all of them")
