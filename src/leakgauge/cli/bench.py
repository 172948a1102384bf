"""`leakgauge bench`: victim-steps per second on this machine, the engine beside the loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from leakgauge.audit.bench import CASES, BenchRow, check, measure
from leakgauge.cli.console import deliver, say, show, show_table
from leakgauge.cli.options import DEVICE, JSON, flag, flags_from
from leakgauge.lab.growth import GrowthRow, measure_growth, points
from leakgauge.lab.solving import SolvingRow, measure_solving
from leakgauge.settings import unknown_name
from leakgauge.setup.setup import environment, pick_device


@dataclass(frozen=True, kw_only=True)
class BenchFlags:
    """The options of `leakgauge bench`."""

    models: str | None = flag("Which to time: 'lenet-dlg convnet resnet20-4 resnet18'. Default: all.")
    victims: int | None = flag("Side by side. Default: fits the model and device.")
    seconds: float = flag("About how long each way is timed.", default=3.0)
    precision: str = flag("float32, float64, or tf32 products on a GPU.", default="float32")
    solving: bool = flag("Time instead how soon 100 victims (or --victims) are solved by CPL.", default=False)
    growth: bool = flag("Time instead more victims, larger networks, batches and pictures, with memory.", default=False)
    loop_victims: int = flag("With --solving: how many the loop is timed on.", default=8)
    seed: int = flag("Seed of models and samples.", default=0, min=0)
    device: DEVICE = "auto"
    as_json: JSON = False


@flags_from(BenchFlags)
def bench(given: BenchFlags) -> int:
    """Time gradient matching: all victims side by side, and one after another as published code runs them.

    Example: `leakgauge bench --models lenet-dlg --victims 20`
    """
    known = {case.model: case for case in CASES}
    names = given.models.split() if given.models is not None else list(known)
    for name in names:
        if name not in known:
            raise unknown_name("model to time", name, known)
    check(given.seconds, given.victims)
    where = pick_device(given.device)
    rows: list[Any] = []
    if given.solving:
        rows = [measure_solving(where, given.victims or 100, given.loop_victims, given.seed)]
    elif given.growth:
        for point in points(where):
            say(f"timing {point.model}: {point.victims} victims, batches of {point.batch}, {point.side} px ...")
            rows.append(measure_growth(point, where, given.seconds, given.precision, given.seed))
    else:
        for name in names:
            say(f"timing {name} ...")
            rows.append(measure(known[name], where, given.seconds, given.victims, given.precision, given.seed))
    plain = [row.as_dict() for row in rows]
    measured = {"solving": plain[0]} if given.solving else {"rows": plain}
    shown = _show_solving if given.solving else _show_growth if given.growth else _show_rates
    deliver(measured | {"environment": environment(where)}, given.as_json, lambda: shown(rows))
    return 0


def _show_rates(rows: Sequence[BenchRow]) -> None:
    columns = ["model", "victims", "device", "precision", "loop /s", "engine /s", "engine / loop"]
    rates = [[f"{r.loop:.1f}", f"{r.engine:.1f}", f"{r.ratio:.2f}"] for r in rows]
    show_table(columns, [[r.model, r.victims, r.device, r.precision, *rates[i]] for i, r in enumerate(rows)])
    show("victim-steps per second; the ratio is what carries over to other machines")


def _show_growth(rows: Sequence[GrowthRow]) -> None:
    shown = []
    for r in rows:
        rate = "no room" if r.steps_per_second is None else f"{r.steps_per_second:,.1f}"
        size = "" if r.bytes_per_victim is None else f"{r.bytes_per_victim / 1e6:,.1f}"
        shown.append([r.grows, r.model, f"{r.parameters:,}", r.victims, r.batch, r.side, rate, size])
    show_table(["grows", "model", "parameters", "victims", "batch", "side", "victim-steps /s", "MB a victim"], shown)
    show("all victims of a row at once; an audit takes as many at once as fit")


def _show_solving(rows: Sequence[SolvingRow]) -> None:
    (r,) = rows
    times = f"{r.loop_seconds:.0f}", f"{r.engine_seconds:.1f}", f"{r.sooner:.1f} x"
    solved = f"{r.loop_solved} of {r.loop_victims}", f"{r.engine_solved} of {r.victims}"
    heads = ["model", "victims", "device", "loop s", "engine s", "sooner", "solved by loop", "by engine"]
    show_table(heads, [[r.model, r.victims, r.device, *times, *solved]])
    show("the loop is timed on a few victims and scaled to all of them")
