"""`leakgauge attack NAME`: one attack against one configuration. Each attack's fields are its flags.

The sub-commands are made from the attacks of the catalogue, so a new file in `attacks/` is a new command.
"""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Annotated, Any

import click
import typer

from leakgauge.cli import options
from leakgauge.cli.running import run
from leakgauge.errors import BadInput, LeakgaugeError
from leakgauge.settings import plain_type
from leakgauge.setup.plan import check_assumed, knowledge
from leakgauge.types import Attack, Scenario


def command_for(attack: type[Attack]) -> click.Command:
    """A command whose flags are the common options and the attack's own fields."""
    common = inspect.signature(_attack, eval_str=True).parameters
    own = [_flag(attack, field) for field in dataclasses.fields(attack)]
    clash = sorted({p.name for p in own} & set(common))
    if clash:
        raise LeakgaugeError(
            f"attack {attack.name!r} has a field {clash[0]!r}, which is a common option; rename the field"
        )

    def call(**flags: Any) -> int:
        fields = {p.name: flags.pop(p.name) for p in own}
        built = attack.from_mapping({name: value for name, value in fields.items() if value is not None})
        return _attack(built, **flags)

    shared = [p for name, p in common.items() if name != "attack"]
    call.__signature__ = inspect.Signature(own + [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in shared])  # type: ignore[attr-defined]
    call.__annotations__ = {p.name: p.annotation for p in own + shared}
    about = inspect.cleandoc(attack.__doc__ or "")
    call.__doc__ = f"{attack.summary[:1].upper()}{attack.summary[1:]}.\n\n{about}\n\nPaper: {attack.paper}."
    single = typer.Typer(rich_markup_mode="markdown", add_completion=False)
    single.command(attack.name)(call)
    return typer.main.get_command(single)


def _flag(attack: type[Attack], field: dataclasses.Field[Any]) -> inspect.Parameter:
    kind = plain_type(attack, field.name)
    name = "--" + field.name.replace("_", "-")
    declared = f"{name}/--no-{name[2:]}" if kind is bool else name
    meta = field.metadata
    allowed = f" One of: {', '.join(meta['choices'])}." if meta.get("choices") else ""
    help_text = f"{meta.get('help', '')}.{allowed} Default {field.default}."
    wanted: Any = bool | None if kind is bool else str | None
    # Numbers arrive as text, so that our own checks can name the field, its range and what came.
    word = {int: "INTEGER", float: "NUMBER", str: "TEXT"}.get(kind)
    option = Annotated[wanted, typer.Option(declared, help=help_text, show_default=False, metavar=word)]
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option)


def _attack(
    attack: Attack,
    model: options.MODEL = None,
    data: options.DATA = None,
    defense: Annotated[
        list[str] | None, typer.Option("--defense", help="NAME[:field=value,...]; repeat to chain.")
    ] = None,
    batch_size: options.BATCH_SIZE = None,
    batch_labels: options.BATCH_LABELS = None,
    partition: options.PARTITION = None,
    local: options.LOCAL = None,
    training: options.TRAINING = None,
    threat_model: options.THREAT_MODEL = None,
    shared_layers: options.SHARED_LAYERS = None,
    weights: options.WEIGHTS = None,
    precision: options.PRECISION = None,
    metrics: options.METRICS = None,
    update: Annotated[
        Path | None, typer.Option("--update", help="Attack this saved update instead of a simulated client.")
    ] = None,
    trials: options.TRIALS = None,
    seed: options.SEED = None,
    adaptive: options.VARIANTS = None,
    assume: options.ASSUME = None,
    device: options.DEVICE = "auto",
    data_root: options.DATA_ROOT = None,
    out: options.OUT = None,
    keep_private: options.KEEP_PRIVATE = False,
    fresh: options.FRESH = False,
    as_json: options.JSON = False,
) -> int:
    chain = "+".join(defense or [])
    scenario = options.changed(
        Scenario(),
        model=model,
        data=data,
        batch_size=batch_size,
        batch_labels=batch_labels,
        partition=partition,
        local=local,
        training=training,
        metrics=metrics,
        variants=options.variants_of(adaptive),
        assume=assume,
        threat_model=threat_model,
        weights=weights,
        precision=precision,
        shared_layers=shared_layers,
        trials=trials,
        seed=seed,
        attacks=(attack.spec,),
        defenses=(chain,) if chain else (),
    )
    if update is not None:
        given = [name for name, value in (("--defense", defense), ("--trials", trials)) if value]
        if given:
            raise BadInput(
                "--update",
                allowed="used without --defense and --trials",
                got=" and ".join(given),
                do="the file already is what was shared",
            )
        if scenario.assume:
            _refuse_several_ways(attack, scenario)
            scenario = dataclasses.replace(scenario, variants="plain" if adaptive is False else "adaptive")
        scenario = dataclasses.replace(scenario, update=str(update), blind=True)  # audit --update scores what it can
    return run(
        scenario,
        out=out,
        as_json=as_json,
        undefended=False,
        data_root=data_root,
        device=device,
        fresh=fresh,
        keep_private=keep_private,
    )


def _refuse_several_ways(attack: Attack, scenario: Scenario) -> None:
    """One file is attacked once, so in one way to use what is assumed."""
    check_assumed(scenario, [attack])
    ways = knowledge(scenario, attack, ())
    if len(ways) != 1:
        named = ", ".join(repr(known.way) for way in ways for known in way)
        raise BadInput(
            "--assume",
            allowed=f"with one of these ways, as NAME@WAY: {named}" if ways else f"something that helps {attack.name}",
            got=scenario.assume,
            do="choose one" if ways else "leave it out",
        )
