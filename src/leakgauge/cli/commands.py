"""The commands by name. Each is loaded when it runs: `leakgauge --help` reads their first lines and loads none."""

from __future__ import annotations

import ast
import os
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import typer
from typer.core import TyperGroup


@dataclass(frozen=True)
class Home:
    """Where a command stands: a function of a module beside this one, or a group, which says here what it is for."""

    module: str
    name: str
    group: str = ""

    @property
    def about(self) -> str:
        """The first paragraph of its help, without loading it."""
        if self.group:
            return self.group
        tree = ast.parse(Path(__file__).with_name(f"{self.module}.py").read_text(encoding="utf-8"))
        function = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == self.name)
        return (ast.get_docstring(function) or "").partition("\n\n")[0]

    def load(self, shown: str) -> click.Command:
        """The command itself, as typer builds it."""
        found: Any = getattr(import_module(f"leakgauge.cli.{self.module}"), self.name)
        if self.group:
            app = found if isinstance(found, typer.Typer) else typer.Typer(cls=found, no_args_is_help=True)
            app.info.help = self.group
            return typer.main.get_group(app)
        single = typer.Typer(rich_markup_mode="markdown", add_completion=False)
        single.command(shown)(found)
        return typer.main.get_command(single)


HOMES = {
    "audit": Home("audit", "audit"),
    "attack": Home("attack", "AttackGroup", "Run one attack: pictures and scores. Its fields are its flags."),
    "list": Home("listing", "listing"),
    "report": Home("report", "report"),
    "reproduce": Home("reproduce", "reproduce"),
    "inspect": Home("inspect", "inspect"),
    "triage": Home("triage", "triage"),
    "recorded": Home("recorded", "recorded"),
    "detection": Home("detection", "detection"),
    "bench": Home("bench", "bench"),
    "property": Home("property", "infer"),
    "reidentify": Home("reidentify", "reidentify"),
    "train": Home("train", "train"),
    "train-generator": Home("train_generator", "train_generator"),
    "train-model": Home("train_model", "train_model"),
    "train-locked": Home("train_locked", "train_with_locks"),
    "search-policy": Home("search_policy", "search_policy"),
    "two-gaussians": Home("two_gaussians", "two_gaussians"),
    "read-key": Home("read_key", "read_keys"),
    "read-words": Home("read_words", "read_words"),
    "data": Home("data", "data", "Data sets: what is there, is it intact, download it."),
}


class Commands(TyperGroup):
    """All of them; a command that only has to be named is not loaded."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = dict.fromkeys(HOMES, click.Command(None))  # where typer looks for the name that was meant

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(HOMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        return Unloaded(cmd_name, HOMES[cmd_name]) if cmd_name in HOMES else None


class Unloaded(click.Command):
    """Stands for a command until it is to run."""

    def __init__(self, name: str, home: Home) -> None:
        super().__init__(name, help=home.about)
        self._home = home

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        _spare_cores()
        return loaded(self.name or "").make_context(info_name, args, parent, **extra)


@cache
def loaded(name: str) -> click.Command:
    """The command of that name, with the libraries that it works with."""
    return HOMES[name].load(name)


def _spare_cores() -> None:
    """Threads that spin beside other work cost far more than they bring; half the cores is safe and nearly as fast."""
    import torch

    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // 2))
