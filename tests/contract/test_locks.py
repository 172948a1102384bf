"""The locks hold every dependency that is declared, at a version that is allowed, with the hashes of its files."""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "locks").glob("*.txt"))
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = DECLARED["project"]["optional-dependencies"]
CORE = DECLARED["project"]["dependencies"] + DECLARED["build-system"]["requires"]
WANTED = {"core": CORE, "test": CORE + EXTRAS["test"] + EXTRAS["docs"]}
CONSTRAINTS = re.findall(r"^[\w.-]+==\S+$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.fixture
def tools(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))


@pytest.fixture
def lockfile(tools):
    return importlib.import_module("lockfile")


@pytest.mark.parametrize("name", WANTED)
def test_every_declared_dependency_is_locked_within_its_bounds(lockfile, name):
    pins = lockfile.read(name)
    for requirement in map(Requirement, WANTED[name]):
        pin = pins[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(pin.version), f"{requirement}, locked at {pin.version}"


@pytest.mark.parametrize("name", WANTED)
def test_locks_and_constraints_agree(lockfile, name):
    pins = lockfile.read(name)
    assert CONSTRAINTS
    for requirement in map(Requirement, CONSTRAINTS):
        pin = pins.get(canonicalize_name(requirement.name))
        assert pin is None or requirement.specifier.contains(pin.version), f"{requirement}, locked at {pin.version}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_line_is_a_pin_with_hashes_and_nothing_names_an_address(lockfile, path):
    for name, pin in lockfile.read(path.stem).items():  # raises on any other line
        assert len(set(pin.digests)) == len(pin.digests) >= 1, name
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"://|\bwww\.|--(extra-)?index|--find-links|@", text)


def test_the_smaller_locks_are_part_of_the_larger(lockfile):
    core, test, cpu = lockfile.read("core"), lockfile.read("test"), lockfile.read("cpu")
    assert core.items() <= test.items()
    assert set(cpu) == {"torch"}
    assert cpu["torch"].version.partition("+")[0] == core["torch"].version
    assert set(cpu["torch"].digests) <= set(core["torch"].digests)
    assert not lockfile.read("cuda").keys() & test.keys()


def test_a_line_without_a_hash_is_no_lock(lockfile, tmp_path, monkeypatch):
    monkeypatch.setattr(lockfile, "LOCKS", tmp_path)
    (tmp_path / "core.txt").write_text("click==8.3.3\n", encoding="utf-8")
    with pytest.raises(ValueError, match="click"):
        lockfile.read("core")


@pytest.mark.parametrize(
    ("wheel", "target", "expected"),
    [
        ("six-1.17.0-py2.py3-none-any.whl", ((3, 12), "macOS arm64"), True),
        ("torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl", ((3, 11), "Linux x86_64"), True),
        ("torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl", ((3, 12), "Linux x86_64"), False),
        ("torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl", ((3, 11), "Linux aarch64"), False),
        ("safetensors-0.8.0-cp310-abi3-macosx_11_0_arm64.whl", ((3, 12), "macOS arm64"), True),
        ("numpy-2.4.6-cp312-cp312-musllinux_1_2_x86_64.whl", ((3, 12), "Linux x86_64"), False),
        ("pillow-13.0.0-cp313-cp313t-macosx_11_0_universal2.whl", ((3, 12), "macOS arm64"), False),
    ],
)
def test_a_lock_takes_the_wheels_that_its_targets_could_take(tools, wheel, target, expected):
    assert importlib.import_module("lock").fits(wheel, target) is expected
