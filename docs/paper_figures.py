"""Figures on the pages of papers: read from a recipe's measurements when the documentation is built, never typed.

`{{wei2020cpl; 2; CPL; CIFAR-10; asr}}` names recipe, table, row, column and statistic, and becomes the paper's figure
and ours: `0.973 → 1.000 [0.988, 1.000], n = 300`.
"""

from __future__ import annotations

import re
from pathlib import Path

from leakgauge.errors import BadInput
from leakgauge.lab import recipes
from leakgauge.lab.reproduce import measured
from leakgauge.lab.reproduce.rendering import figure
from leakgauge.lab.reproduce.statistics import written

_PLACE = re.compile(r"\{\{(.+?)\}\}")
NOT_MEASURED = "not measured yet"


def filled(text: str) -> str:
    """The page with every figure in its place; a place that no recipe has is refused."""
    return _PLACE.sub(lambda found: figure_at(found[1]), text)


def figure_at(place: str) -> str:
    name, *rest = (part.strip() for part in place.split(";"))
    if len(rest) != 4:
        raise BadInput(
            "a figure", allowed="written {{recipe; table; row; column; statistic}}", got=place, do="name all five"
        )
    recipe = recipes.get(name)
    table, row, column, statistic = rest
    cell = next((c for c in recipe.table(table).cells if (c.row, c.column) == (row, column)), None)
    if cell is None or statistic not in cell.reported:
        raise BadInput(
            "a figure", allowed=f"one of a cell of {name}", got=place, do=f"see leakgauge lab reproduce {name} --list"
        )
    entries = measured.read(Path(__file__).parents[1] / "results" / name)
    entry = next((e for e in entries if e.place == (table, row, column, statistic)), None)
    if entry is None:
        return f"{written(statistic, cell.reported[statistic])}, {NOT_MEASURED}"
    return f"{figure(entry)}, n = {entry.trials}"
