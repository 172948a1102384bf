"""One folder per paper: its `recipe.py` builds the tables. `results/` has what we measured and a page of both.

Each recipe is found by walking this folder; there is no list to edit. `leakgauge.lab.reproduce` runs them.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from leakgauge.lab.reproduce.recipe import Recipe
from leakgauge.settings import unknown_name


@cache
def find() -> dict[str, Recipe]:
    """Every recipe by its name, which is its folder's, sorted."""
    folders = sorted(m.name for m in pkgutil.iter_modules(__path__) if m.ispkg and not m.name.startswith("_"))
    return {name: importlib.import_module(f"{__name__}.{name}.recipe").RECIPE for name in folders}


def get(name: str) -> Recipe:
    """One recipe by name; an unknown name is refused with the nearest known one."""
    if name not in find():
        raise unknown_name("recipe", name, find())
    return find()[name]
