"""The packages in their order, and who imports whom, read from the source.

`tests/contract/test_architecture.py` holds the source to this order; the architecture page draws it.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "leakgauge"
ORDER = (  # each may import what stands above it, and itself
    "errors",
    "settings",
    "reading",
    "types",
    "catalog",
    "outline",
    "metrics",
    "engine",
    "models",
    "data",
    "generators",
    "client",
    "matching",
    "attacks",
    "servers",
    "defenses",
    "federation",
    "checks",
    "setup",
    "verdict",
    "recording",
    "execution",
    "audit",
    "report",
    "integrations",
    "testing",
    "lab",
    "cli",
    "entry",
    "__main__",
)
RANK = {part: rank for rank, part in enumerate(ORDER)}
FILES = sorted(p for p in SOURCE.rglob("*.py") if "__pycache__" not in p.parts)


def relative(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def part_of(path: Path) -> str:
    """`attacks/dlg.py` -> "attacks", `catalog.py` -> "catalog"."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_parts(path: Path) -> set[str]:
    """The parts of leakgauge that a file imports, also inside functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{relative(path)}: relative import; write it out"
            names = [node.module or ""]
            if node.module == "leakgauge":
                names = [f"leakgauge.{alias.name}" for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("leakgauge.")}
    return found


def package_graph() -> dict[str, set[str]]:
    """part -> the parts that it imports."""
    graph: dict[str, set[str]] = {}
    for path in FILES:
        if path != SOURCE / "__init__.py":
            graph.setdefault(part_of(path), set()).update(imported_parts(path) - {part_of(path)})
    return graph


def without_implied(graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The graph without imports that follow from others: if a imports b and b imports c, a -> c is left out."""
    below: dict[str, set[str]] = {}
    for part in sorted(graph, key=RANK.__getitem__):
        below[part] = graph[part].union(*(below[p] for p in graph[part]))
    return {part: {p for p in parts if not any(p in below[other] for other in parts)} for part, parts in graph.items()}


def said_by(path: Path) -> str:
    """The first sentence of a module's docstring, without its last full stop."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split()).removesuffix(".")
