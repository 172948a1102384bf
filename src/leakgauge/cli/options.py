"""Options that several commands share, defined once."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from leakgauge.types import SECTIONS, Scenario

JSON = Annotated[bool, typer.Option("--json", help="Print the result as one JSON document on stdout.")]
SEED = Annotated[int | None, typer.Option("--seed", help="Seed of model, victims and attacks. Default 0.")]
TRIALS = Annotated[int | None, typer.Option("--trials", help="Victims, attacked side by side. Default 6.")]
DEVICE = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:1.")]
OUT = Annotated[Path | None, typer.Option("--out", help="Folder for report and pictures. Default leakgauge-runs/KEY.")]
DATA_ROOT = Annotated[Path | None, typer.Option("--data-root", help="Folder with data sets. Default $LEAKGAUGE_DATA.")]
MODEL = Annotated[
    str | None, typer.Option("--model", help="NAME[:field=value,...], FILE.py:FACTORY or PACKAGE.MODULE:FACTORY.")
]
DATA = Annotated[str | None, typer.Option("--data", help="NAME, FOLDER, FILE.npz or FILE.py:FACTORY.")]
BATCH_SIZE = Annotated[int | None, typer.Option("--batch-size", help="Private samples behind one update. Default 1.")]
BATCH_LABELS = Annotated[str | None, typer.Option("--batch-labels", help="Labels in a batch: any, distinct or same.")]
PARTITION = Annotated[
    str | None, typer.Option("--partition", help="Spread of the data: kind=dirichlet,alpha=0.1,clients=20 ...")
]
METRICS = Annotated[str | None, typer.Option("--metrics", help="Scores besides mse, psnr, ssim: 'lpips mae'.")]
LOCAL = Annotated[
    str | None, typer.Option("--local", help="Local training: kind=fedavg,epochs=2,lr=0.01,batchnorm=train ...")
]
TRAINING = Annotated[
    str | None, typer.Option("--training", help="Train the global model first: rounds=20,lr=0.01,optimizer=sgd ...")
]
PRECISION = Annotated[
    str | None, typer.Option("--precision", help="float32, tf32 (a GPU's rounded products) or float64.")
]
THREAT_MODEL = Annotated[
    str | None, typer.Option("--threat-model", help="NAME, or NAME+labels, NAME+batchnorm for an oracle.")
]
SHARED_LAYERS = Annotated[
    str | None,
    typer.Option("--shared-layers", help="Layers whose tensors are seen: all, first:2, last:1 or names, conv1+fc."),
]
WEIGHTS = Annotated[
    str | None, typer.Option("--weights", help="Checkpoint of the model (.safetensors, or .pt with tensors only).")
]
KEEP_PRIVATE = Annotated[
    bool,
    typer.Option(
        "--keep-private", help="Keep the attacked samples as they are, too: for pictures in later reports. Owner only."
    ),
]
FRESH = Annotated[bool, typer.Option("--fresh", help="Run everything anew, also what is finished in --out.")]
WORKERS = Annotated[
    int | None,
    typer.Option(
        "--workers", help="Processes that share the work, one thread each. Default: none besides this; with --on, all."
    ),
]
WORKER_MEMORY = Annotated[
    str | None, typer.Option("--worker-memory", help="The most a worker may hold in memory: 4GB, 500MB.")
]
ON = Annotated[
    str | None,
    typer.Option("--on", help="Where the work runs: ray (started for this), ray=auto or ray=HOST:PORT. Default: here."),
]
GPUS_PER_TASK = Annotated[
    float | None, typer.Option("--gpus-per-task", help="With --on: share of a GPU for each process. Default 1.")
]
VARIANTS = Annotated[
    bool | None,
    typer.Option(
        "--adaptive/--plain", help="Only attackers who know the defense, or only those who do not. Default: both."
    ),
]
ASSUME = Annotated[
    str | None,
    typer.Option(
        "--assume",
        help="What informed attackers take for the defense, true or not: NAME[:field=value,...][@WAY]; a+b chains.",
    ),
]


Flags = TypeVar("Flags")


def flags_from(fields: type[Flags]) -> Callable[[Callable[[Flags], int]], Callable[..., int]]:
    """For a command with many flags: they are the fields of a dataclass, and the command is handed one of these."""

    def made(command: Callable[[Flags], int]) -> Callable[..., int]:
        hints = get_type_hints(fields, include_extras=True)
        parameters = [
            inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=hints[f.name])
            for f in dataclasses.fields(fields)  # type: ignore[arg-type]
        ]

        def call(**given: Any) -> int:
            return command(fields(**given))

        call.__name__, call.__doc__, call.__module__ = command.__name__, command.__doc__, command.__module__
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {p.name: p.annotation for p in parameters}
        return call

    return made


def variants_of(choice: bool | None) -> str | None:
    return None if choice is None else ("adaptive" if choice else "plain")


def changed(scenario: Scenario, **flags: object) -> Scenario:
    """`scenario` with the flags that were given on the command line (None means not given)."""
    given = {name: value for name, value in flags.items() if value is not None}
    for name, section in SECTIONS.items():
        if isinstance(given.get(name), str):
            given[name] = section.from_text(str(given[name]))
    if isinstance(given.get("metrics"), str):
        given["metrics"] = tuple(str(given["metrics"]).split())
    return Scenario.from_mapping({**scenario.as_dict(), **given})
