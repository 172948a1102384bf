"""`leakgauge audit`: every attack against every configuration, one verdict."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from leakgauge import catalog
from leakgauge.cli import options
from leakgauge.cli.console import say
from leakgauge.cli.executing import executing
from leakgauge.cli.recorded import audit_rounds, list_recorded
from leakgauge.cli.running import run
from leakgauge.cli.template import write_template
from leakgauge.errors import BadInput
from leakgauge.reading.files import regular
from leakgauge.recording.own_update import holds_batch, is_recording
from leakgauge.recording.recorded_clients import left_aside
from leakgauge.types import Federation, Scenario

# What a bare `leakgauge audit` shows: a leak, a defense that holds, and one that only seems to.
DEFAULT_DEFENSES = ("gaussian:std=1", "prune:share=0.9")
_NESTED = 100  # dots or brackets in a line of a scenario file: each level costs the parser as much as all before it


@dataclass(frozen=True)
class AuditFlags:
    """What `leakgauge audit` can be told."""

    scenario: Annotated[
        Path | None, typer.Argument(help="SCENARIO.toml; flags override what it says.", show_default=False)
    ] = None
    attacks: Annotated[
        str | None, typer.Option("--attacks", help="Comma-free list: 'dlg idlg:steps=50'. Default: the suite.")
    ] = None
    defenses: Annotated[
        str | None,
        typer.Option(
            "--defenses",
            help="Configurations to compare: 'gaussian:std=0.1 prune'; a+b chains; none for none, all for every one.",
        ),
    ] = None
    cost: Annotated[
        str | None,
        typer.Option(
            "--cost", help="Train each configuration too and draw leak against accuracy: rounds=50,per_round=10 ..."
        ),
    ] = None
    gate: Annotated[
        str | None,
        typer.Option(
            "--gate", help="Exit with 1 if any record reaches this: ssim=0.5; or too many may: ...,confidence=0.95."
        ),
    ] = None
    suite: Annotated[
        str | None,
        typer.Option("--suite", help="Without --attacks: quick, standard or full; about 1, 10 or 120 minutes."),
    ] = None
    ledger: Annotated[
        bool | None,
        typer.Option("--ledger/--no-ledger", help="Run the strongest attack again with each assumption changed."),
    ] = None
    update: Annotated[
        str | None, typer.Option("--update", help="Audit this saved update; --data is then the batch behind it.")
    ] = None
    recorded: Annotated[
        str | None,
        typer.Option("--recorded", help="Audit the clients of a federation: the folder that a recorder wrote."),
    ] = None
    round: Annotated[
        int | None, typer.Option("--round", help="With --recorded: the clients of this round. Default: the earliest.")
    ] = None
    blind: Annotated[
        bool | None,
        typer.Option(
            "--blind/--scored", help="With --update or --recorded: --data holds none of the samples behind it."
        ),
    ] = None
    all_rounds: Annotated[
        bool, typer.Option("--all-rounds", help="With --recorded: every round, each with a report of its own.")
    ] = False
    listed: Annotated[bool, typer.Option("--list", help="With --recorded: say what is there, and stop.")] = False
    init: Annotated[
        bool, typer.Option("--init", help="Write a commented scenario file (default scenario.toml) and stop.")
    ] = False
    model: options.MODEL = None
    data: options.DATA = None
    batch_size: options.BATCH_SIZE = None
    batch_labels: options.BATCH_LABELS = None
    partition: options.PARTITION = None
    local: options.LOCAL = None
    training: options.TRAINING = None
    threat_model: options.THREAT_MODEL = None
    shared_layers: options.SHARED_LAYERS = None
    weights: options.WEIGHTS = None
    precision: options.PRECISION = None
    metrics: options.METRICS = None
    trials: options.TRIALS = None
    seed: options.SEED = None
    adaptive: options.VARIANTS = None
    assume: options.ASSUME = None
    device: options.DEVICE = "auto"
    data_root: options.DATA_ROOT = None
    out: options.OUT = None
    keep_private: options.KEEP_PRIVATE = False
    fresh: options.FRESH = False
    workers: options.WORKERS = None
    worker_memory: options.WORKER_MEMORY = None
    on: options.ON = None
    gpus_per_task: options.GPUS_PER_TASK = None
    as_json: options.JSON = False


@options.flags_from(AuditFlags)
def audit(given: AuditFlags) -> int:
    """Play every attack against a configuration and say what was recovered.

    Example: `leakgauge audit --model lenet-dlg --data photos32 --defenses "gaussian:std=0.01 prune:share=0.9"`
    """
    if given.init:
        return _init(given)
    if given.attacks is not None and not given.attacks.split():
        raise BadInput("--attacks", allowed="at least one name", got="none", do="leave it out for the whole suite")
    scenario = _described(given)
    _refuse_flags_without_use(given, scenario)
    if given.listed:
        return list_recorded(Path(str(scenario.update)), given.round, given.as_json)
    if given.all_rounds:
        return audit_rounds(
            scenario,
            given.round,
            out=given.out,
            as_json=given.as_json,
            data_root=given.data_root,
            device=given.device,
            fresh=given.fresh,
            keep_private=given.keep_private,
        )
    if is_recording(scenario.update) and (aside := left_aside(scenario, Path(str(scenario.update)))):
        say(f"before it starts: {aside}")
    with executing(
        device=given.device,
        data_root=given.data_root,
        workers=given.workers,
        worker_memory=given.worker_memory,
        on=given.on,
        gpus_per_task=given.gpus_per_task,
    ) as executor:
        return run(
            scenario,
            out=given.out,
            as_json=given.as_json,
            undefended=True,
            data_root=given.data_root,
            device=given.device,
            fresh=given.fresh,
            keep_private=given.keep_private,
            executor=executor,
            federation=None if given.cost is None else Federation.from_text(given.cost),
        )


def _init(given: AuditFlags) -> int:
    """Write the commented scenario file."""
    others = (given.model, given.data, given.attacks, given.defenses, given.update, given.recorded, given.gate)
    if any(flag is not None for flag in (*others, given.suite)):
        raise BadInput("--init", allowed="alone, or with a path", got="other flags", do="change the file it writes")
    path = given.scenario or Path("scenario.toml")
    write_template(path)
    say(f"written: {path}; run it with leakgauge audit {path}")
    return 0


def _described(given: AuditFlags) -> Scenario:
    """The scenario file, or the usual scenario, with the flags over it."""
    update = _saved(given.update, given.recorded)
    usual = Scenario(defenses=DEFAULT_DEFENSES if update is None else ())
    return options.changed(
        read_scenario(given.scenario) if given.scenario else usual,
        model=given.model,
        data=given.data,
        batch_size=given.batch_size,
        batch_labels=given.batch_labels,
        partition=given.partition,
        local=given.local,
        training=given.training,
        metrics=given.metrics,
        variants=options.variants_of(given.adaptive),
        assume=given.assume,
        gate=given.gate,
        threat_model=given.threat_model,
        weights=given.weights,
        shared_layers=given.shared_layers,
        precision=given.precision,
        trials=given.trials,
        seed=given.seed,
        attacks=None if given.attacks is None else tuple(given.attacks.split()),
        suite=given.suite,
        ledger=given.ledger,
        update=update,
        round=given.round,
        blind=given.blind,
        defenses=None if given.defenses is None else _named(given.defenses.split()),
    )


def _refuse_flags_without_use(given: AuditFlags, scenario: Scenario) -> None:
    """Flags that say nothing beside the others are mistakes."""
    if scenario.blind and scenario.update is None:
        raise BadInput("--blind", allowed="used with --update or --recorded", got="neither", do="leave --blind out")
    recording = is_recording(scenario.update)
    if scenario.round is not None and not recording:
        raise BadInput("--round", allowed="used with --recorded", got=scenario.round, do="name the recorder's folder")
    for flag, said in (("--all-rounds", given.all_rounds), ("--list", given.listed)):
        if said and not recording:
            raise BadInput(flag, allowed="used with --recorded", got="none", do="name the recorder's folder")
    elsewhere = (("--workers", given.workers), ("--on", given.on), ("--cost", given.cost))
    for flag, value in elsewhere if given.all_rounds else ():
        if value is not None:
            raise BadInput(flag, allowed="left out with --all-rounds", got=value, do="or audit one --round")
    file = scenario.update is not None and not recording
    if given.batch_size is not None and file and holds_batch(scenario):
        raise BadInput(
            "--batch-size",
            allowed="left out where --data is the batch behind --update",
            got=given.batch_size,
            do="that batch says how large it is; with --blind it is for you to say",
        )


def _saved(update: str | None, recorded: str | None) -> str | None:
    """What was shared already, by whichever flag it is named."""
    if recorded is None:
        return update
    if update is not None:
        raise BadInput("--update and --recorded", allowed="one of them", got="both", do="leave one out")
    if not Path(recorded).is_dir():
        raise BadInput(
            "--recorded",
            allowed="a folder that a recorder wrote",
            got=f"{recorded!r}, which is none",
            do="check the path; a single update is named by --update",
        )
    return recorded


def _named(words: list[str]) -> tuple[str, ...]:
    """The configurations that were asked for; `all` stands for every defense with its usual fields."""
    every = list(catalog.find("defenses"))
    return tuple(d for word in words for d in (every if word == "all" else [word]) if d != "none")


def read_scenario(path: Path) -> Scenario:
    """A scenario from TOML; unknown keys are refused."""
    do = "see docs: the scenario file"
    if not path.exists() and str(path) in catalog.find("attacks"):
        do = f"an attack is named by a flag: --attacks {path}"
    try:
        text = regular(path).read_text(encoding="utf-8")
        if any(max(line.count("."), line.count("[")) > _NESTED for line in text.splitlines()):
            raise BadInput(f"scenario {str(path)!r}", allowed="a few tables", got="one nested far deeper", do=do)
        values: dict[str, Any] = tomllib.loads(text)
    except OSError as error:
        raise BadInput(
            f"scenario {str(path)!r}", allowed="a readable file", got=error.strerror or str(error), do=do
        ) from error
    except BadInput:
        raise
    except (ValueError, RecursionError) as error:  # of the encoding, of TOML, of numbers with thousands of digits
        raise BadInput(f"scenario {str(path)!r}", allowed="valid TOML", got=str(error), do=do) from error
    return Scenario.from_mapping(values)
