"""`leakgauge property`: can a server tell from an update whether its batch has a property?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from leakgauge.audit.property_inference import SHUFFLES, PropertyInference, PropertyReport, infer_property
from leakgauge.cli import options
from leakgauge.cli.console import say, show, show_json, show_table
from leakgauge.cli.running import interval
from leakgauge.reading.files import make_folder, write_whole
from leakgauge.types import Interval, Scenario

MODEL, DATA, TRIALS, BATCH_SIZE = "cnn-melis", "photos32", 100, 32


def infer(
    prop: Annotated[
        str, typer.Option("--property", help="class:K, bright, or patch[:PIXELS], which is stamped on.")
    ] = "patch",
    share: Annotated[
        float | None, typer.Option("--share", help="Share of a batch that carries it, where it is there. Default 0.4.")
    ] = None,
    batches: Annotated[
        int | None, typer.Option("--batches", help="Batches that the attacker computes updates of. Default 400.")
    ] = None,
    public: Annotated[
        int | None, typer.Option("--public", help="Public samples that the attacker has. Default 512.")
    ] = None,
    trees: Annotated[int | None, typer.Option("--trees", help="Trees of the attacker's forest. Default 100.")] = None,
    pooling: Annotated[
        str | None, typer.Option("--pooling", help="Features: both, inputs (as published), energy or best.")
    ] = None,
    model: options.MODEL = MODEL,
    data: options.DATA = DATA,
    defenses: Annotated[
        str | None, typer.Option("--defenses", help="Configurations to compare: 'gaussian:std=0.1 prune'; a+b chains.")
    ] = None,
    batch_size: Annotated[int, typer.Option("--batch-size", help="Private samples behind one update.")] = BATCH_SIZE,
    trials: Annotated[int, typer.Option("--trials", help="Victims; every second one has the property.")] = TRIALS,
    local: options.LOCAL = None,
    training: options.TRAINING = None,
    threat_model: options.THREAT_MODEL = None,
    weights: options.WEIGHTS = None,
    precision: options.PRECISION = None,
    seed: options.SEED = None,
    device: options.DEVICE = "auto",
    data_root: options.DATA_ROOT = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for property.json. Default: none.")] = None,
    as_json: options.JSON = False,
) -> None:
    """Ask of each update whether its batch has a property: AUC and accuracy beside guessing, with and without defenses.

    Example: `leakgauge property --property bright --data photos32 --trials 20 --defenses "gaussian:std=0.001"`
    """
    scenario = options.changed(
        Scenario(),
        model=model,
        data=data,
        batch_size=batch_size,
        trials=trials,
        local=local,
        training=training,
        threat_model=threat_model,
        weights=weights,
        precision=precision,
        seed=seed,
        defenses=tuple(d for d in (defenses or "").split() if d != "none"),
    )
    fields = {
        "property": prop,
        "share": share,
        "batches": batches,
        "public": public,
        "trees": trees,
        "pooling": pooling,
    }
    inference = PropertyInference.from_mapping({name: value for name, value in fields.items() if value is not None})
    if out is not None:
        make_folder(out)
    report = infer_property(
        scenario, inference, data_root=data_root, device=device, on_progress=lambda name: say(f"updates: {name} ...")
    )
    if out is not None:
        write_whole(out / "property.json", json.dumps(report.as_dict(), indent=2, allow_nan=False).encode())
    if as_json:
        show_json(report.as_dict())
    else:
        _show(report)
    if out is not None:
        say(f"written: {out / 'property.json'}")


def _show(report: PropertyReport) -> None:
    """The table, the worst attacker per configuration, and what the numbers rest on."""
    rows = []
    for row in report.rows:
        right = row.accuracy
        rows.append(
            [
                row.defense,
                row.attacker,
                interval(row.auc, 3),
                interval(row.control, 2),
                interval(Interval(right.value, right.low, right.high), 2),
                f"{row.seconds:.0f} s",
            ]
        )
    show_table(["defense", "attacker", "AUC [95 %]", "shuffled labels", "accuracy [95 %]", "time"], rows)
    show("")
    for configuration in dict.fromkeys(row.defense for row in report.rows):
        show(_sentence(report, configuration))
    size, with_it = report.scenario.batch_size, sum(report.has)
    show(
        f"{len(report.has)} victims of {size} samples, of which {with_it} have {report.inference.property!r} in "
        f"{report.carriers} samples and the others in none; guessing gives 0.5. "
        f"Control: the mean of {SHUFFLES} attackers taught with shuffled labels."
    )
    for name, counts in report.pools.items():
        carry, do_not = counts["carry it"], counts["do not"]
        kinds = f"any of {do_not}, stamped" if report.stamped else f"{carry} that carry it, {do_not} that do not"
        show(f"samples of the {name}: {kinds}")


def _sentence(report: PropertyReport, configuration: str) -> str:
    """A configuration is as good as the better attacker leaves it."""
    worst = max((r for r in report.rows if r.defense == configuration), key=lambda r: r.auc.value or 0.0)
    tells = worst.auc.low is not None and worst.auc.low > 0.5
    verdict = "the update gives the property away" if tells else "no better than guessing could be shown"
    return f"{configuration}: {verdict} (AUC {interval(worst.auc, 3)}, {worst.attacker} attacker)."
