"""`leakgauge audit`: every attack against every configuration, one verdict."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from leakgauge import catalog
from leakgauge.cli.console import say
from leakgauge.cli.options import Places, Run, Victim, flag, flags_from
from leakgauge.cli.recorded import CHEAP, audit_rounds, list_recorded
from leakgauge.cli.running import executing, run
from leakgauge.errors import BadInput
from leakgauge.reading.files import regular, write_whole
from leakgauge.recording.own_update import holds_batch, is_recording
from leakgauge.recording.recorded_clients import left_aside
from leakgauge.recording.recorded_folder import read_folder
from leakgauge.types import Federation, Scenario

# What a bare `leakgauge audit` shows: a leak, a defense that holds, and one that only seems to.
DEFAULT_DEFENSES = ("gaussian:std=1", "prune:share=0.9")
_NESTED = 100  # dots or brackets in a line of a scenario file: each level costs the parser as much as all before it
TEMPLATE = Path(__file__).with_name("scenario.toml")  # what --init writes: every key and a word on each, valid as it is


@dataclass(frozen=True, kw_only=True)
class AuditFlags(Run, Places):
    """The options of `leakgauge audit`."""

    scenario: Annotated[
        Path | None, typer.Argument(help="SCENARIO.toml; flags override what it says.", show_default=False)
    ] = None
    attacks: str | None = flag("Names with blanks between them: 'dlg idlg:steps=50'. Default: the suite.")
    defenses: str | None = flag(
        "Configurations to compare: 'gaussian:std=0.1 prune'; a+b chains; none for none, all for every one."
    )
    cost: str | None = flag("Train each configuration too and draw leak against accuracy: rounds=50,per_round=10 ...")
    gate: str | None = flag("Exit with 1 if any record reaches this: ssim=0.5; or too many may: ...,confidence=0.95.")
    suite: str | None = flag("Without --attacks: quick, standard or full; about 1, 10 or 120 minutes.")
    ledger: bool | None = flag("Run the strongest attack again with each assumption changed.", "--ledger/--no-ledger")
    update: str | None = flag("Audit this saved update; --data is then the batch behind it.")
    recorded: str | None = flag("Audit the clients of a federation: the folder that a recorder wrote.")
    round: int | None = flag("With --recorded: the clients of this round. Default: the earliest.")
    blind: bool | None = flag(
        "With --update or --recorded: --data holds none of the samples behind it.", "--blind/--scored"
    )
    all_rounds: bool = flag("With --recorded: every round, each with a report of its own.", default=False)
    listed: bool = flag("With --recorded: say what is there, and stop.", "--list", default=False)
    init: bool = flag("Write a commented scenario file (default scenario.toml) and stop.", default=False)


@flags_from(AuditFlags)
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
        return audit_rounds(scenario, given.round, given)
    if is_recording(scenario.update) and (aside := left_aside(scenario, Path(str(scenario.update)))):
        say(f"note: {aside}")
    federation = None if given.cost is None else Federation.from_text(given.cost)
    with executing(given) as executor:
        return run(scenario, given, undefended=True, executor=executor, federation=federation)


def _init(given: AuditFlags) -> int:
    """Write the commented scenario file; what is there already is left alone."""
    others = ("model", "data", "attacks", "defenses", "update", "recorded", "gate", "suite")
    if any(getattr(given, name) is not None for name in others):
        raise BadInput("--init", allowed="alone, or with a path", got="other flags", do="change the file it writes")
    path = given.scenario or Path("scenario.toml")
    if path.exists():
        do = "choose another name: leakgauge audit --init other.toml"
        raise BadInput(f"file {str(path)!r}", allowed="a name that is free", got="an existing file", do=do)
    write_whole(path, TEMPLATE.read_bytes())
    say(f"written: {path}; run it with leakgauge audit {path}")
    return 0


def _described(given: AuditFlags) -> Scenario:
    """The scenario file, or the usual scenario, with the flags over it."""
    update = _saved(given.update, given.recorded)
    usual = Scenario(defenses=DEFAULT_DEFENSES if update is None else ())
    base = read_scenario(given.scenario) if given.scenario else usual
    return given.over(base, update=update, defenses=None if given.defenses is None else _named(given.defenses.split()))


def _refuse_flags_without_use(given: AuditFlags, scenario: Scenario) -> None:
    """Flags that say nothing beside the others are mistakes."""
    if scenario.blind and scenario.update is None:
        raise BadInput("--blind", allowed="used with --update or --recorded", got="neither", do="leave --blind out")
    recording = is_recording(scenario.update)
    if scenario.round is not None and not recording:
        raise BadInput("--round", allowed="used with --recorded", got=scenario.round, do="name the recorder's folder")
    for name, value in (("--all-rounds", given.all_rounds), ("--list", given.listed)):
        if value and not recording:
            raise BadInput(name, allowed="used with --recorded", got="none", do="name the recorder's folder")
    for name in ("workers", "on", "cost") if given.all_rounds else ():
        if (value := getattr(given, name)) is not None:
            raise BadInput(f"--{name}", allowed="left out with --all-rounds", got=value, do="or audit one --round")
    if given.batch_size is not None and scenario.update and not recording and holds_batch(scenario):
        allowed = "left out where --data is the batch behind --update"
        do = "that batch says how large it is; with --blind it is for you to say"
        raise BadInput("--batch-size", allowed=allowed, got=given.batch_size, do=do)


def _saved(update: str | None, recorded: str | None) -> str | None:
    """What was shared already, by whichever flag it is named."""
    if recorded is None:
        return update
    if update is not None:
        raise BadInput("--update and --recorded", allowed="one of them", got="both", do="leave one out")
    if not Path(recorded).is_dir():
        got, do = f"{recorded!r}, which is none", "check the path; a single update is named by --update"
        raise BadInput("--recorded", allowed="a folder that a recorder wrote", got=got, do=do)
    return recorded


def _named(words: list[str]) -> tuple[str, ...]:
    """The configurations that were asked for; `all` stands for every defense with its usual fields."""
    every = list(catalog.find("defenses"))
    return tuple(d for word in words for d in (every if word == "all" else [word]) if d != "none")


def read_scenario(path: Path) -> Scenario:
    """A scenario from TOML; unknown keys are refused."""
    what, do = f"scenario {str(path)!r}", "see docs: the scenario file"
    if not path.exists() and str(path) in catalog.find("attacks"):
        do = f"an attack is named by a flag: --attacks {path}"
    try:
        text = regular(path).read_text(encoding="utf-8")
        if any(max(line.count("."), line.count("[")) > _NESTED for line in text.splitlines()):
            raise BadInput(what, allowed="a few tables", got="one nested far deeper", do=do)
        values: dict[str, Any] = tomllib.loads(text)
    except OSError as error:
        raise BadInput(what, allowed="a readable file", got=error.strerror or str(error), do=do) from error
    except BadInput:
        raise
    except (ValueError, RecursionError) as error:  # of the encoding, of TOML, of numbers with thousands of digits
        raise BadInput(what, allowed="valid TOML", got=str(error), do=do) from error
    return Scenario.from_mapping(values)


@dataclass(frozen=True, kw_only=True)
class RecordedFlags(Victim):
    """The options of `leakgauge recorded`."""

    folder: Annotated[Path, typer.Argument(help="What a Recorder, a callback or a Flower app wrote.")]
    attacks: str = flag("Names with blanks between them, as for audit: 'linear dlg:steps=50'.", default=" ".join(CHEAP))
    defense: str | None = flag("What the clients do, a+b chains: attackers who know it are run too.")
    round: int | None = flag("Only updates of this round. Default: all.")
    batch_size: int | None = flag("Private samples behind one update, if not as recorded.", min=1)
    out: Path | None = flag("Folder for report and pictures. Default leakgauge-runs/KEY.")


@flags_from(RecordedFlags)
def recorded(given: RecordedFlags) -> int:
    """Old name of `leakgauge audit --recorded DIR --all-rounds`, and of `--list` where no model is named.

    Example: `leakgauge recorded recorded --model mlp --data digits`
    """
    listed = given.model is None
    if listed != (given.data is None):
        got = "--model alone" if given.data is None else "--data alone"
        raise BadInput("--model and --data", allowed="given together", got=got, do="add the other one")
    flags = {name: value for name, value in vars(given).items() if name not in ("folder", "defense")}
    if not listed:  # --data named the kind of samples here, never the samples
        flags["blind"] = any(entry.private is None for entry in read_folder(given.folder))
    code: int = audit(**flags, recorded=str(given.folder), defenses=given.defense, listed=listed, all_rounds=not listed)
    new = "--list" if listed else "--all-rounds"
    say(f"leakgauge: 'recorded {given.folder}' is now 'audit --recorded {given.folder} {new}'")
    return code
