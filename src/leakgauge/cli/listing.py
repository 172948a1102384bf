"""`leakgauge list`: what there is to choose from, read from the source text, so that the answer comes at once."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

import leakgauge
from leakgauge import outline
from leakgauge.cli import options
from leakgauge.cli.console import show, show_json, show_table
from leakgauge.settings import unknown_name
from leakgauge.types import THREAT_MODELS

KINDS = ("attacks", "defenses", "aggregators", "encryptions", "models", "data", "metrics", "threat-models", "recipes")
_KIND = f"One of: {', '.join(KINDS)}. Default: all."
SETTABLE = ("attacks", "defenses", "aggregators", "encryptions", "models")  # kinds with fields


def listing(
    kind: Annotated[str | None, typer.Argument(help=_KIND, show_default=False)] = None, as_json: options.JSON = False
) -> None:
    """List attacks, defenses, aggregators, encryptions, models, data sets, metrics, threat models or recipes.

    Example: `leakgauge list attacks --json`
    """
    if kind is not None and kind not in KINDS:
        raise unknown_name("what to list", kind, KINDS)
    found = {k: entries(k) for k in ([kind] if kind else KINDS)}
    if as_json:
        show_json(found[kind] if kind else found)
        return
    for title, rows in found.items():
        if kind is None:
            show(title.upper())
        show_table(["name", "what it is", "from"], [[row["name"], row["summary"], row["paper"]] for row in rows])
        if kind is None:
            show("")


def entries(kind: str) -> list[dict[str, Any]]:
    """One row each: name, summary, paper; what an attack needs to know; the fields of what has some."""
    if kind == "threat-models":
        facts = {name: sorted(fact.value for fact in t.facts) for name, t in THREAT_MODELS.items()}
        return [_row(t) | {"facts": facts[name], "may_change": t.may_change} for name, t in THREAT_MODELS.items()]
    rows = []
    for each in (recipes() if kind == "recipes" else outline.of(kind)).values():
        row = _row(each)
        if kind == "attacks":
            row["needs"] = list(each.needs)
        if kind in SETTABLE:
            row["fields"] = [dataclasses.asdict(field) for field in each.fields]
        rows.append(row)
    return rows


def _row(each: Any) -> dict[str, Any]:
    return {"name": each.name, "summary": each.summary, "paper": each.paper}


def recipes() -> dict[str, outline.Outline]:
    """Every recipe by name, as the lab finds them."""
    files = sorted((Path(leakgauge.__file__).parent / "lab" / "recipes").glob("[!_]*/recipe.py"))
    found = (outline.instance(f"leakgauge.lab.recipes.{file.parent.name}.recipe", "RECIPE") for file in files)
    return {each.name: each for each in found}
