"""`leakgauge attack NAME`: one attack against one configuration. Each attack's fields are its flags.

The sub-commands are made from the attacks of the catalogue, so a new file in `attacks/` is a new command.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from leakgauge.cli.options import Run, flag, parameters_of, with_signature
from leakgauge.cli.running import run
from leakgauge.errors import BadInput, LeakgaugeError
from leakgauge.settings import plain_type
from leakgauge.setup.plan import check_assumed, knowledge
from leakgauge.types import Attack, Scenario


@dataclass(frozen=True, kw_only=True)
class AttackFlags(Run):
    """The options that all attacks share."""

    defense: list[str] | None = flag("NAME[:field=value,...]; repeat to chain.")
    update: Path | None = flag("Attack this saved update instead of a simulated client.")


def command_for(attack: type[Attack]) -> Callable[..., int]:
    """A command, for typer, whose flags are the attack's own fields and the common options."""
    common = parameters_of(AttackFlags)
    own = [_flag(attack, field) for field in dataclasses.fields(attack)]
    if clash := sorted({p.name for p in own} & {p.name for p in common}):
        what = f"attack {attack.name!r} has a field {clash[0]!r}, which is a common option; rename the field"
        raise LeakgaugeError(what)

    def call(**flags: Any) -> int:
        fields = {p.name: flags.pop(p.name) for p in own}
        built = attack.from_mapping({name: value for name, value in fields.items() if value is not None})
        return _attack(built, AttackFlags(**flags))

    about = inspect.cleandoc(attack.__doc__ or "")
    call.__doc__ = f"{attack.summary[:1].upper()}{attack.summary[1:]}.\n\n{about}\n\nPaper: {attack.paper}."
    return with_signature(call, own + common)


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


def _attack(attack: Attack, given: AttackFlags) -> int:
    chain = "+".join(given.defense or [])
    update = None if given.update is None else str(given.update)
    scenario = given.over(Scenario(), attacks=(attack.spec,), defenses=(chain,) if chain else (), update=None)
    if update is not None:
        if beside := [f"--{name}" for name in ("defense", "trials") if getattr(given, name)]:
            allowed, do = "used without --defense and --trials", "the file already is what was shared"
            raise BadInput("--update", allowed=allowed, got=" and ".join(beside), do=do)
        if scenario.assume:
            _refuse_several_ways(attack, scenario)
            scenario = dataclasses.replace(scenario, variants="plain" if given.adaptive is False else "adaptive")
        scenario = dataclasses.replace(scenario, update=update, blind=True)  # audit --update scores what it can
    return run(scenario, given, undefended=False)


def _refuse_several_ways(attack: Attack, scenario: Scenario) -> None:
    """One file is attacked once, so in one way to use what is assumed."""
    check_assumed(scenario, [attack])
    ways = knowledge(scenario, attack, ())
    if len(ways) == 1:
        return
    named = ", ".join(repr(known.way) for way in ways for known in way)
    allowed = f"with one of these ways, as NAME@WAY: {named}" if ways else f"something that helps {attack.name}"
    raise BadInput("--assume", allowed=allowed, got=scenario.assume, do="choose one" if ways else "leave it out")
