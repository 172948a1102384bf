"""The bill of materials holds what CycloneDX asks for, every declared dependency, and the same bytes each time."""

from __future__ import annotations

import hashlib
import importlib
import json
import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


@pytest.fixture
def sbom(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    found = importlib.import_module("sbom")
    if unlike := found.unlike_the_lock():
        pytest.skip(f"installed in other versions than locked: {', '.join(unlike)}")
    return found


@pytest.fixture
def wheel(tmp_path) -> Path:
    path = tmp_path / "leakgauge-0.2.0-py3-none-any.whl"
    path.write_bytes(b"not looked into")
    return path


def test_the_essentials_of_the_schema_are_there(sbom, wheel):
    told = sbom.document(wheel)
    assert (told["bomFormat"], told["specVersion"], told["version"]) == ("CycloneDX", "1.6", 1)
    assert set(told) <= {"$schema", "bomFormat", "specVersion", "version", "metadata", "components", "dependencies"}
    ours = told["metadata"]["component"]
    assert ours["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(b"not looked into").hexdigest()}]
    for component in (ours, *told["components"]):
        assert component["type"] == "library"
        assert component["purl"] == component["bom-ref"] == f"pkg:pypi/{component['name']}@{component['version']}"
        assert component["hashes"]
        assert all(re.fullmatch(r"[0-9a-f]{64}", one["content"]) for one in component["hashes"])
        assert component["licenses"]
        for licence in component["licenses"]:
            assert len(component["licenses"]) == 1 or "expression" not in licence
            assert set(licence) == {"expression"} or len(licence["license"].keys() & {"id", "name"}) == 1


def test_every_declared_dependency_and_whoever_is_needed_is_a_component(sbom, wheel):
    told = sbom.document(wheel)
    refs = {component["bom-ref"]: component["name"] for component in told["components"]}
    assert len(refs) == len(told["components"])
    needs = {row["ref"]: row["dependsOn"] for row in told["dependencies"]}
    assert len(needs) == len(told["dependencies"]) == len(refs) + 1
    assert {need for refs_of_one in needs.values() for need in refs_of_one} <= set(refs)
    declared = {canonicalize_name(Requirement(line).name) for line in sbom.licences.declared()[""]}
    assert {refs[need] for need in needs["pkg:pypi/leakgauge@0.2.0"]} == declared


def test_the_same_wheel_gives_the_same_bytes_and_a_time_only_when_told(sbom, wheel, monkeypatch):
    first = sbom.main(wheel).read_bytes()
    assert sbom.main(wheel).read_bytes() == first
    assert "timestamp" not in json.loads(first)["metadata"]
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert sbom.document(wheel)["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"


def test_other_versions_than_locked_are_refused(sbom, wheel, monkeypatch):
    monkeypatch.setattr(sbom, "unlike_the_lock", lambda: ["numpy"])
    with pytest.raises(SystemExit, match="numpy"):
        sbom.main(wheel)
