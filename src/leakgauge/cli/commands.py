"""The commands by name, as a tree. Each is loaded when it runs: `--help` reads their first lines and loads none."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import typer
from typer.core import TyperGroup

from leakgauge import catalog, outline
from leakgauge.cli.console import say
from leakgauge.settings import unknown_name

KEPT, KEPT_IN_OUT = "kept", "kept in --out"  # what an interrupt leaves of finished work


@dataclass(frozen=True)
class Command:
    """A function of a module beside this one; the command of an attack is made of the attack's own fields."""

    module: str
    function: str
    keeps: str = ""  # finished work after an interrupt: KEPT, KEPT_IN_OUT or nothing
    hidden: bool = False  # works, and is not in the list
    attack: outline.Outline | None = None

    @property
    def about(self) -> str:
        """The first paragraph of its help, without loading it."""
        if self.attack is not None:
            return f"{self.attack.summary[:1].upper()}{self.attack.summary[1:]}."
        path = Path(__file__).parent.joinpath(*self.module.split(".")).with_suffix(".py")
        tree = ast.parse(path.read_text(encoding="utf-8"))
        function = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == self.function)
        return (ast.get_docstring(function) or "").partition("\n\n")[0]

    def load(self, name: str) -> click.Command:
        """The command itself, as typer builds it; only now its module, and an attack, is imported."""
        made = getattr(import_module(f"leakgauge.cli.{self.module}"), self.function)
        single = typer.Typer(rich_markup_mode="markdown", add_completion=False)
        single.command(name)(made if self.attack is None else made(catalog.get("attacks", name)))
        return typer.main.get_command(single)


@dataclass(frozen=True)
class Group:
    """Commands under one name."""

    about: str
    example: str
    commands: Mapping[str, Node] = field(default_factory=dict)
    usual: str = ""  # the command that is meant where none is named
    of_attacks: bool = False  # its commands are the attacks of the catalogue
    hidden: bool = False

    @property
    def members(self) -> Mapping[str, Node]:
        if not self.of_attacks:
            return self.commands
        return {name: Command("attack", "command_for", KEPT, attack=found) for name, found in _attacks().items()}

    def load(self, name: str) -> click.Command:
        """The group itself; its commands are not loaded."""
        return Branch(self, name=name, help=f"{self.about}\n\nExample: `{self.example}`", rich_markup_mode="markdown")


Node = Command | Group

LAB = Group(
    "Measure again what papers say, and what only that needs.",
    "leakgauge lab reproduce wei2020cpl --quick",
    {
        "reproduce": Command("lab.reproduce", "reproduce", KEPT),
        "detection": Command("lab.detection", "detection"),
        "reidentify": Command("lab.reidentify", "reidentify"),
        "search-policy": Command("lab.search_policy", "search_policy", KEPT),
        "train-locked": Command("lab.train_locked", "train_with_locks", KEPT_IN_OUT),
        "read-key": Command("lab.read_key", "read_keys"),
        "read-words": Command("lab.read_words", "read_words"),
        "two-gaussians": Command("lab.two_gaussians", "two_gaussians"),
    },
)
TREE: dict[str, Node] = {
    "audit": Command("audit", "audit", KEPT),
    "attack": Group(
        "Run one attack: pictures and scores. Its fields are its flags.",
        "leakgauge attack linear --model mlp --data digits",
        of_attacks=True,
    ),
    "list": Command("listing", "listing"),
    "report": Command("report", "report"),
    "inspect": Command("inspect", "inspect"),
    "triage": Command("triage", "triage"),
    "property": Command("property", "infer"),
    "train": Group(
        "Train a federation with defenses, or what attacks need: a model, a generator. Alone it means the federation.",
        "leakgauge train --data digits --model mlp --defense gaussian:std=0.01 --rounds 20",
        {
            "federation": Command("train.federation", "train", KEPT_IN_OUT),
            "model": Command("train.model", "train_model", KEPT),
            "generator": Command("train.generator", "train_generator"),
        },
        usual="federation",
    ),
    "data": Group(
        "Data sets: what is there, is it intact, download it.",
        "leakgauge data list",
        {
            "list": Command("data", "list_"),
            "verify": Command("data", "verify_"),
            "fetch": Command("data", "fetch_", KEPT),
        },
    ),
    "bench": Command("bench", "bench"),
    "lab": LAB,
    "recorded": Command("audit", "recorded", hidden=True),
}
TOP = Group("Measure what a federated-learning update gives away.", "leakgauge audit", TREE)
# Names of version 0.1: they work in 0.2 and say the new one.
OLD = {name: f"lab {name}" for name in LAB.commands} | {
    "train-model": "train model",
    "train-generator": "train generator",
}


class Branch(TyperGroup):
    """A group of commands; one that only has to be named is not loaded."""

    def __init__(self, group: Group, **settings: Any) -> None:
        super().__init__(**{"no_args_is_help": not group.usual} | settings)
        self._group = group
        self.commands = dict.fromkeys(self.list_commands(), click.Command(None))  # typer looks here for what was meant

    def list_commands(self, ctx: click.Context | None = None) -> list[str]:  # noqa: ARG002
        return [name for name, node in self._group.members.items() if not node.hidden]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Options without a command in front of them are those of the usual one."""
        if self._group.usual and (not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names)):
            args = [self._group.usual, *args]
        return super().parse_args(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        node = self._group.members.get(cmd_name)
        if node is None and self._group.of_attacks and not cmd_name.startswith("-"):
            raise unknown_name("attack", cmd_name, self.list_commands())
        return None if node is None else Unloaded(cmd_name, node)


class Commands(Branch):
    """All of them, also under their old names."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(TOP, **settings)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] in OLD:
            new = OLD[args[0]]
            say(f"leakgauge: '{args[0]}' is an old name and goes with version 0.3: write 'leakgauge {new}'")
            args = [*new.split(), *args[1:]]
        return super().resolve_command(ctx, args)


class Unloaded(click.Command):
    """Stands for a command until it is to run."""

    def __init__(self, name: str, node: Node) -> None:
        super().__init__(name, help=node.about)
        self._node = node

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        command = self._node.load(self.name or "")
        _spare_cores()
        return command.make_context(info_name, args, parent, **extra)


def every(group: Group = TOP) -> list[tuple[str, ...]]:
    """The words of every command, `("train", "model")` and so on."""
    found: list[tuple[str, ...]] = []
    for name, node in group.members.items():
        found += [(name, *rest) for rest in every(node)] if isinstance(node, Group) else [(name,)]
    return found


def meant(given: Sequence[str]) -> Node | None:
    """What a command line names, by new or old names; None for nothing that there is."""
    words = [word for word in given if not word.startswith("-")]
    if words and words[0] in OLD:
        words = [*OLD[words[0]].split(), *words[1:]]
    node: Node | None = TOP
    for word in [*words, ""]:
        if isinstance(node, Group):
            node = node.members.get(word) or node.members.get(node.usual)
    return node


@cache
def loaded(*words: str) -> click.Command:
    """A command or a group by its words, with the libraries that it works with."""
    node: Node = TOP
    for word in words:
        assert isinstance(node, Group)
        node = node.members[word]
    return node.load(words[-1])


@cache
def _attacks() -> dict[str, outline.Outline]:
    return outline.of("attacks")


def _spare_cores() -> None:
    """Threads that spin beside other work cost far more than they bring; half the cores is safe and nearly as fast."""
    torch = sys.modules.get("torch")
    if torch is not None and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // 2))
