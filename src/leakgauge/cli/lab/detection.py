"""`leakgauge lab detection`: how often `inspect` finds each tampering server, and how often it raises a false alarm."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from leakgauge.checks.thresholds import Thresholds
from leakgauge.cli import options
from leakgauge.cli.console import say, show, show_json, show_table, watching
from leakgauge.cli.options import flag, flags_from
from leakgauge.errors import BadInput
from leakgauge.lab.detection.arms_race import Point, race
from leakgauge.lab.detection.cases import clean_cases, tampered_cases
from leakgauge.lab.detection.rates import by_check, chosen_thresholds, halves, rates, score_all
from leakgauge.lab.detection.writing import Study, as_dict, write_study
from leakgauge.setup.setup import environment, pick_device
from leakgauge.types import Interval


@dataclass(frozen=True, kw_only=True)
class DetectionFlags:
    """The options of `leakgauge lab detection`."""

    clean: int = flag("Clean models: fresh, trained, pruned, quantised.", default=200)
    per_server: int = flag("Models of each tampering server.", default=50)
    arms_race: int = flag("Seeds for MKOR hiding by noise; 0 leaves that out.", default=0)
    seed: options.SEED = None
    device: options.DEVICE = "auto"
    out: Path | None = flag("Folder for table, plot and numbers.")
    as_json: options.JSON = False


@flags_from(DetectionFlags)
def detection(given: DetectionFlags) -> int:
    """Measure `leakgauge inspect` on our own models: true and false alarms, on embedded data.

    Thresholds are chosen on one half of the models and rates are reported on the other.

    Example: `leakgauge lab detection --clean 40 --per-server 8`
    """
    clean, per_server, arms_race, device = given.clean, given.per_server, given.arms_race, given.device
    for name, value, least in (("--clean", clean, 4), ("--per-server", per_server, 2), ("--arms-race", arms_race, 0)):
        if value < least:
            raise BadInput(name, allowed=f"at least {least}", got=value, do="choose a value in that range")
    where, first = pick_device(device), given.seed or 0
    cases = [*clean_cases(clean, first), *tampered_cases(per_server, first)]
    with watching() as watch:
        scored = score_all(cases, watch=lambda n, of: watch(n - 1, of, "inspecting models", 1.0))
        points: tuple[Point, ...] = ()
        if arms_race:
            seeds = range(first, first + arms_race)
            points = tuple(race(seeds, device=device, watch=lambda n, of: watch(n - 1, of, "arms race", 1.0)))
    choosing, reporting = halves(scored)
    chosen = chosen_thresholds(choosing)
    study = Study(
        tuple(rates(reporting, chosen)),
        tuple(rates(reporting, Thresholds())),
        chosen,
        len(scored),
        first,
        points,
        environment(where),
        tuple(by_check(scored, Thresholds())),
    )
    if given.as_json:
        show_json(as_dict(study))
    else:
        rows = [
            [row.family, str(row.models), *(_share(i) for i in (row.weights, row.probed, usual.weights, usual.probed))]
            for row, usual in zip(study.rows, study.usual, strict=True)
        ]
        show_table(["family", "models", "weights", "with samples", "weights, shipped", "with samples, shipped"], rows)
        moved = {
            f.name: getattr(chosen, f.name)
            for f in dataclasses.fields(chosen)
            if getattr(chosen, f.name) != getattr(Thresholds(), f.name)
        }
        show("Thresholds chosen: " + ", ".join(f"{name} {value:.3g}" for name, value in moved.items()))
    if given.out is not None:
        for path in write_study(study, given.out).values():
            say(f"written: {path}")
    return 0


def _share(interval: Interval) -> str:
    return f"{100 * (interval.value or 0):.0f} % [{100 * (interval.low or 0):.0f}, {100 * (interval.high or 0):.0f}]"
