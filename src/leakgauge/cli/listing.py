"""`leakgauge list`: what is in the house."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from leakgauge import catalog
from leakgauge.cli import options
from leakgauge.cli.console import show, show_json, show_table
from leakgauge.lab import recipes
from leakgauge.settings import unknown_name
from leakgauge.types import THREAT_MODELS

KINDS = ("attacks", "defenses", "aggregators", "encryptions", "models", "data", "metrics", "threat-models", "recipes")


def listing(
    kind: Annotated[
        str | None, typer.Argument(help=f"One of: {', '.join(KINDS)}. Default: all.", show_default=False)
    ] = None,
    as_json: options.JSON = False,
) -> None:
    """List attacks, defences, aggregators, encryptions, models, data sets, metrics, threat models or recipes.

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
        show_table(["name", "what it is", "from"], [[r["name"], r["summary"], r["paper"]] for r in rows])
        if kind is None:
            show("")


def entries(kind: str) -> list[dict[str, Any]]:
    """One row each: name, summary, paper, and what an attack needs to know."""
    if kind == "threat-models":
        return [
            {
                "name": t.name,
                "summary": t.summary,
                "paper": t.paper,
                "facts": sorted(f.value for f in t.facts),
                "may_change": t.may_change,
            }
            for t in THREAT_MODELS.values()
        ]
    rows = []
    known: Mapping[str, Any] = recipes.find() if kind == "recipes" else catalog.find(kind)
    for name, thing in known.items():
        row: dict[str, Any] = {"name": name, "summary": thing.summary, "paper": getattr(thing, "paper", "")}
        if kind == "attacks":
            row["needs"] = sorted(f.value for f in thing.needs)
        rows.append(row)
    return rows
