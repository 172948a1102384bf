"""The layout holds: imports point one way, every public module has its mirror test, the public surface is small."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

import leakgauge

SOURCE = Path(leakgauge.__file__).parent
ROOT = Path(__file__).parents[2]
ORDER = (  # of the packages: each may import what stands above it, and itself
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
MIRRORED = tuple(part for part in ORDER if (SOURCE / part).is_dir() and part != "types")
FILES = sorted(p for p in SOURCE.rglob("*.py") if "__pycache__" not in p.parts)


def relative(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def part_of(path: Path) -> str:
    """`attacks/dlg.py` -> "attacks", `types.py` -> "types"."""
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
    graph: dict[str, set[str]] = {}
    for path in FILES:
        if path != SOURCE / "__init__.py":
            graph.setdefault(part_of(path), set()).update(imported_parts(path) - {part_of(path)})
    return graph


@pytest.mark.parametrize("path", [p for p in FILES if p != SOURCE / "__init__.py"], ids=relative)
def test_imports_point_one_way(path: Path) -> None:
    own = part_of(path)
    assert own in RANK, f"{own} has no place among the layers; give it one"
    for part in imported_parts(path):
        assert part in RANK, f"{relative(path)} imports the unknown part {part}"
        assert RANK[part] <= RANK[own], f"{relative(path)} imports {part}, which stands above it"


def test_no_two_parts_import_each_other_in_a_circle() -> None:
    graph = package_graph()
    done: set[str] = set()
    while len(done) < len(graph):
        free = {part for part, needs in graph.items() if part not in done and needs <= done}
        assert free, f"a circle among {sorted(graph.keys() - done)}"
        done |= free


def test_types_import_only_errors_and_settings() -> None:
    assert package_graph()["types"] == {"errors", "settings"}


def test_attacks_never_import_the_truth_or_its_scores() -> None:
    """The secret goes to the client step and to the scores; an attack has no business with either, nor with audits."""
    for path in (p for p in FILES if part_of(p) in ("attacks", "servers")):
        assert not imported_parts(path) & {"metrics", "data", "audit", "store", "verdict"}, relative(path)


# Their behaviour is held by the tests of who uses them; each gets its own when it is next changed.
TESTED_THROUGH_OTHERS = {"matching/input_search.py", "matching/probing.py"}
PUBLIC_MODULES = [
    path
    for path in FILES
    if part_of(path) in MIRRORED
    and (len(path.relative_to(SOURCE).parts) == 2 or part_of(path) == "cli")
    and not path.name.startswith("_")
    and relative(path) not in TESTED_THROUGH_OTHERS
]


@pytest.mark.parametrize("path", PUBLIC_MODULES, ids=relative)
def test_every_public_module_has_its_mirror_test(path: Path) -> None:
    mirror = ROOT / "tests" / path.parent.relative_to(SOURCE) / f"test_{path.name}"
    assert mirror.is_file(), f"write {mirror.relative_to(ROOT)}"
    assert "def test_" in mirror.read_text(encoding="utf-8")


def test_public_names_are_sorted_few_and_there() -> None:
    assert leakgauge.__all__ == sorted(leakgauge.__all__)
    assert len(leakgauge.__all__) == len(set(leakgauge.__all__)) <= 20
    for name in leakgauge.__all__:
        assert callable(getattr(leakgauge, name)), name
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = leakgauge.nonsense


def test_no_drawer_for_everything() -> None:
    drawers = {"utils.py", "util.py", "helpers.py", "helper.py", "misc.py", "common.py", "tools.py"}
    assert not [relative(p) for p in FILES if p.name.lstrip("_") in drawers]


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_every_module_says_what_it_is_for(path: Path) -> None:
    if path.name != "__main__.py":
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


def test_no_path_of_one_machine_is_in_the_repository() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    machine = re.compile(r"(?<![\w.<$}-])/(?:work|home|root|Users)/[\w.]")
    guilty = []
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if not path.is_file() or path.suffix in (".png", ".npz", ".safetensors"):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if machine.search(line):
                guilty.append(f"{name}:{number}: {line.strip()[:100]}")
    assert not guilty
