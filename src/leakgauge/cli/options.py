"""A command's options are the fields of a frozen dataclass; those that several commands share are defined here, once.

@dataclass(frozen=True, kw_only=True)
class Flags(Common):
    share: float | None = flag("Share of a batch that carries it.")   # the option --share

@flags_from(Flags)
def command(given: Flags) -> int: ...
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from leakgauge.types import SECTIONS, Client, Scenario

# For commands that take their options one by one.
JSON = Annotated[bool, typer.Option("--json", help="Print the result as one JSON document on stdout.")]
SEED = Annotated[int | None, typer.Option("--seed", help="Seed of model, victims and attacks. Default 0.")]
TRIALS = Annotated[int | None, typer.Option("--trials", help="Victims, attacked side by side. Default 6.")]
DEVICE = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:1.")]
DATA_ROOT = Annotated[Path | None, typer.Option("--data-root", help="Folder with data sets. Default $LEAKGAUGE_DATA.")]
MODEL = Annotated[
    str | None, typer.Option("--model", help="NAME[:field=value,...], FILE.py:FACTORY or PACKAGE.MODULE:FACTORY.")
]
DATA = Annotated[str | None, typer.Option("--data", help="NAME, FOLDER, FILE.npz or FILE.py:FACTORY.")]
BATCH_SIZE = Annotated[int | None, typer.Option("--batch-size", help="Private samples behind one update. Default 1.")]
LOCAL = Annotated[
    str | None, typer.Option("--local", help="Local training: kind=fedavg,epochs=2,lr=0.01,batchnorm=train ...")
]
CLIENT = Annotated[
    str | None,
    typer.Option(
        "--client",
        help="The clients' own training: FILE.py:FUNCTION[,lr=0.1,momentum=0.9 ...]; the rest as for --local.",
    ),
]
TRAINING = Annotated[
    str | None, typer.Option("--training", help="Train the global model first: rounds=20,lr=0.01,optimizer=sgd ...")
]
PRECISION = Annotated[
    str | None, typer.Option("--precision", help="float32, tf32 (a GPU's rounded products) or float64.")
]
ON = Annotated[
    str | None,
    typer.Option("--on", help="Where the work runs: ray (started for this), ray=auto or ray=HOST:PORT. Default: here."),
]
GPUS_PER_TASK = Annotated[
    float | None, typer.Option("--gpus-per-task", help="With --on: share of a GPU for each process. Default 1.")
]


def flag(help: str, name: str = "", *, default: Any = None, **settings: Any) -> Any:
    """A field that is an option: `--its-name`, or `name`. A bool is false if nothing is given."""
    return dataclasses.field(default=default, metadata={"names": [name] if name else [], "help": help, **settings})


def required(help: str) -> Any:
    """The same, which has to be given."""
    return flag(help, default=dataclasses.MISSING)


def flags_from(fields: type[Flags]) -> Callable[[Callable[[Flags], int]], Callable[..., int]]:
    """The command is handed one `fields`: its own options come first in the help, then those it shares."""

    def made(command: Callable[[Flags], int]) -> Callable[..., int]:
        def call(**given: Any) -> int:
            return command(fields(**given))

        call.__name__, call.__doc__, call.__module__ = command.__name__, command.__doc__, command.__module__
        return with_signature(call, parameters_of(fields))

    return made


def parameters_of(fields: type) -> list[inspect.Parameter]:
    """The fields of a dataclass as typer wants them."""
    hints = get_type_hints(fields, include_extras=True)
    owned = {f.name: f for f in dataclasses.fields(fields)}
    names = dict.fromkeys(name for owner in fields.__mro__ for name in inspect.get_annotations(owner))
    return [_parameter(owned[name], hints[name]) for name in names]


def _parameter(field: dataclasses.Field[Any], hint: Any) -> inspect.Parameter:
    settings = dict(field.metadata)
    if settings:
        names = settings.pop("names") or ["--" + field.name.replace("_", "-")]
        hint = Annotated[hint, typer.Option(*names, **settings)]
    default = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def with_signature(call: Callable[..., int], parameters: list[inspect.Parameter]) -> Callable[..., int]:
    """`call`, which takes keywords, as typer reads it."""
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {p.name: p.annotation for p in parameters}
    return call


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the work runs."""

    device: DEVICE = "auto"
    data_root: DATA_ROOT = None


@dataclass(frozen=True, kw_only=True)
class Places(Place):
    """Where the work runs, by how many processes."""

    workers: int | None = flag(
        "Processes that share the work, one thread each. Default: none besides this; with --on, all."
    )
    worker_memory: str | None = flag("The most a worker may hold in memory: 4GB, 500MB.")
    on: ON = None
    gpus_per_task: GPUS_PER_TASK = None


@dataclass(frozen=True, kw_only=True)
class Common(Place):
    """Of every command that computes."""

    seed: SEED = None
    as_json: JSON = False


@dataclass(frozen=True, kw_only=True)
class Victim(Common):
    """What is attacked, or trained."""

    model: MODEL = None
    data: DATA = None
    local: LOCAL = None
    weights: str | None = flag("Checkpoint of the model (.safetensors, or .pt with tensors only).")
    precision: PRECISION = None

    def over(self, scenario: Scenario, **values: object) -> Scenario:
        """`scenario` with the flags that were given and are fields of one; `values` go before them."""
        names = (f.name for f in dataclasses.fields(Scenario) if hasattr(self, f.name))
        return changed(scenario, **{name: getattr(self, name) for name in names} | values)


@dataclass(frozen=True, kw_only=True)
class Update(Victim):
    """What an update is computed of, and what is seen of it."""

    batch_size: BATCH_SIZE = None
    training: TRAINING = None
    shared_layers: str | None = flag("Layers whose tensors are seen: all, first:2, last:1 or names, conv1+fc.")


@dataclass(frozen=True, kw_only=True)
class Run(Update):
    """What an attack or an audit runs on, and what it leaves."""

    batch_labels: str | None = flag("Labels in a batch: any, distinct or same.")
    partition: str | None = flag("Spread of the data: kind=dirichlet,alpha=0.1,clients=20 ...")
    threat_model: str | None = flag("NAME, or NAME+labels, NAME+batchnorm for an oracle.")
    metrics: str | None = flag("Scores besides mse, psnr, ssim: 'lpips mae'.")
    trials: TRIALS = None
    client: CLIENT = None
    adaptive: bool | None = flag(
        "Only attackers who know the defense, or only those who do not. Default: both.", "--adaptive/--plain"
    )
    assume: str | None = flag(
        "The defense that informed attackers assume, right or wrong: NAME[:field=value,...][@WAY]; a+b chains."
    )
    out: Path | None = flag("Folder for report and pictures. Default leakgauge-runs/KEY.")
    keep_private: bool = flag(
        "Keep the attacked samples as they are, too: for pictures in later reports. Owner only.", default=False
    )
    fresh: bool = flag("Run everything anew, also what is finished in --out.", default=False)

    def over(self, scenario: Scenario, **values: object) -> Scenario:
        if self.client is None:
            return super().over(scenario, **values)
        return super().over(scenario, local=Client.of_own(self.client, self.local), **values)

    @property
    def variants(self) -> str | None:
        """Which attackers run, as a scenario says it."""
        return {None: None, True: "adaptive", False: "plain"}[self.adaptive]


Flags = TypeVar("Flags")


def changed(scenario: Scenario, **flags: object) -> Scenario:
    """`scenario` with the flags that were given on the command line (None means not given)."""
    given = {name: value for name, value in flags.items() if value is not None}
    for name, section in SECTIONS.items():
        if isinstance(given.get(name), str):
            given[name] = section.from_text(str(given[name]))
    for name in ("metrics", "attacks", "defenses"):
        if isinstance(given.get(name), str):
            given[name] = tuple(str(given[name]).split())
    return Scenario.from_mapping({**scenario.as_dict(), **given})
