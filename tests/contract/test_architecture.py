"""The layout holds: imports point one way, every public module has its mirror test, the public surface is small."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

import leakgauge

ROOT = Path(__file__).parents[2]


def _layers() -> ModuleType:
    """`tools/layers.py`, which the documentation draws too."""
    spec = importlib.util.spec_from_file_location("layers", ROOT / "tools" / "layers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


layers = _layers()
SOURCE, ORDER, RANK, FILES = layers.SOURCE, layers.ORDER, layers.RANK, layers.FILES
relative, part_of, imported_parts, package_graph = (
    layers.relative,
    layers.part_of,
    layers.imported_parts,
    layers.package_graph,
)
MIRRORED = tuple(part for part in ORDER if (SOURCE / part).is_dir() and part != "types")


@pytest.mark.parametrize("path", [p for p in FILES if p != SOURCE / "__init__.py"], ids=relative)
def test_imports_point_one_way(path: Path) -> None:
    own = part_of(path)
    assert own in RANK, f"{own} has no place among the layers; give it one"
    for part in imported_parts(path):
        assert part in RANK, f"{relative(path)} imports the unknown part {part}"
        assert RANK[part] <= RANK[own], f"{relative(path)} imports {part}, which stands above it"


def test_the_tests_and_the_picture_look_at_the_package_that_is_imported() -> None:
    assert Path(leakgauge.__file__).parent == SOURCE


def test_the_picture_leaves_out_what_follows_and_nothing_else() -> None:
    graph = {"errors": set(), "settings": {"errors"}, "types": {"errors", "settings"}, "catalog": {"types", "errors"}}
    assert layers.without_implied(graph) == {
        "errors": set(),
        "settings": {"errors"},
        "types": {"settings"},
        "catalog": {"types"},
    }


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


PUBLIC_MODULES = [
    path
    for path in FILES
    if part_of(path) in MIRRORED
    and (len(path.relative_to(SOURCE).parts) == 2 or part_of(path) == "cli")
    and not path.name.startswith("_")
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
