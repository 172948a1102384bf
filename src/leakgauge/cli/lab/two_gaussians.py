"""`leakgauge lab two-gaussians`: aggregators on a federation small enough to draw."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from leakgauge.cli import options
from leakgauge.cli.console import say, show, show_json, show_table, watching
from leakgauge.cli.options import flag, flags_from
from leakgauge.errors import BadInput
from leakgauge.lab.two_gaussians.cases import CASES
from leakgauge.lab.two_gaussians.comparing import AGGREGATORS, Study, compare
from leakgauge.lab.two_gaussians.drawing import boundaries
from leakgauge.lab.two_gaussians.training import Local
from leakgauge.reading.files import make_folder, write_whole
from leakgauge.types import Interval


@dataclass(frozen=True, kw_only=True)
class GaussiansFlags:
    """The options of `leakgauge lab two-gaussians`."""

    case: list[str] | None = flag(f"{', '.join(CASES)}; repeat. Default: all.")
    aggregator: list[str] | None = flag(
        "NAME[:field=value,...] or centralised; repeat, first the one to compare the others with."
    )
    seeds: int = flag("Federations of each kind.", default=20)
    rounds: int = flag("Rounds of training.", default=10)
    samples: int = flag("Samples of each client.", default=500)
    local: str = flag("The clients' training: optimizer=adam,lr=0.003,batch_size=8,epochs=1.", default="")
    seed: options.SEED = None
    device: str = flag("auto or cpu: these networks are too small for a GPU.", default="auto")
    out: Path | None = flag("Folder for the numbers and the boundaries drawn.")
    as_json: options.JSON = False


@flags_from(GaussiansFlags)
def two_gaussians(given: GaussiansFlags) -> int:
    """Compare aggregators where clients differ or one is poisoned, on two Gaussians, and draw decision boundaries.

    Example: `leakgauge lab two-gaussians --case narrow --seeds 5 --out toy`
    """
    cases, specs, out = given.case or list(CASES), given.aggregator or list(AGGREGATORS), given.out
    how, seed = Local.from_text(given.local), given.seed or 0
    if given.device not in ("auto", "cpu"):
        raise BadInput("--device", allowed="auto or cpu", got=repr(given.device), do="leave it out: this takes seconds")
    if out is not None:
        make_folder(out)
    with watching() as watch:
        study = compare(
            cases,
            specs,
            seeds=given.seeds,
            seed=seed,
            rounds=given.rounds,
            samples=given.samples,
            local=how,
            watch=lambda n, of: watch(n, of, "training federations", 0.0),
        )
    if out is not None:
        write_whole(out / "two-gaussians.json", (json.dumps(study.as_dict(), indent=1) + "\n").encode())
        write_whole(out / "boundaries.svg", boundaries(cases, specs, seed, given.rounds, given.samples, how))
    if given.as_json:
        show_json(study.as_dict())
    else:
        _show(study)
    if out is not None:
        for name in ("two-gaussians.json", "boundaries.svg"):
            say(f"written: {out / name}")
    return 0


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
