"""Writes a bill of materials for a wheel: CycloneDX 1.6, as JSON, beside the wheel.

    python tools/sbom.py dist/leakgauge-0.2.0-py3-none-any.whl

It names the wheel with its hash and every project of locks/core.txt with its version, its licence and the hashes of the
files that the lock admits. Licences and who needs whom are read from what is installed, which must be what is locked.
The same wheel and lock give the same bytes: no random serial number, and a time only if SOURCE_DATE_EPOCH is set.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

import licences
import lockfile
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename


def document(wheel: Path) -> dict[str, Any]:
    """The bill of materials of this wheel."""
    name, version = map(str, parse_wheel_filename(wheel.name)[:2])
    pins, projects = lockfile.read("core"), licences.core()
    refs = {name: _purl(name, version), **{part: _purl(part, pins[part].version) for part in projects}}
    ours = _component(name, version, [hashlib.sha256(wheel.read_bytes()).hexdigest()], ["Apache-2.0"])
    wants = {name: [Requirement(line) for line in licences.declared()[""]]}
    wants |= {part: licences.needs(project) for part, project in projects.items()}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": _time() | {"component": ours},
        "components": [_part(part, pins[part], project) for part, project in projects.items()],
        "dependencies": [{"ref": refs[part], "dependsOn": _refs(needs, refs)} for part, needs in wants.items()],
    }


def unlike_the_lock() -> list[str]:
    """Projects that are installed in another version than the lock's, or not at all."""
    pins, projects = lockfile.read("core"), licences.core()
    there = {name: project.version.partition("+")[0] if project else "" for name, project in projects.items()}
    return sorted(name for name in pins.keys() | there if name not in pins or there.get(name) != pins[name].version)


def _part(name: str, pin: lockfile.Pin, project: Distribution | None) -> dict[str, Any]:
    return _component(name, pin.version, pin.digests, licences.licence(project) if project else ())


def _component(name: str, version: str, digests: Iterable[str], told: Iterable[str]) -> dict[str, Any]:
    purl = _purl(name, version)
    hashes = [{"alg": "SHA-256", "content": digest} for digest in digests]
    known = {"bom-ref": purl, "name": name, "version": version, "purl": purl, "hashes": hashes}
    return {"type": "library", **known, "licenses": [_licence(text) for text in told]}


def _licence(told: str) -> dict[str, Any]:
    if len(licences.terms(told)) > 1 or " WITH " in told:
        return {"expression": told}
    return {"license": {"name" if " " in told else "id": told}}


def _purl(name: str, version: str) -> str:
    return f"pkg:pypi/{name}@{version}"


def _refs(needs: Iterable[Requirement], refs: dict[str, str]) -> list[str]:
    return sorted({refs[name] for need in needs if (name := canonicalize_name(need.name)) in refs})


def _time() -> dict[str, Any]:
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    return {"timestamp": f"{datetime.fromtimestamp(int(epoch), UTC):%Y-%m-%dT%H:%M:%SZ}"} if epoch else {}


def main(wheel: Path) -> Path:
    if unlike := unlike_the_lock():
        sys.exit(f"installed in other versions than locked: {', '.join(unlike)}; use make LOCKED=cpu sbom")
    name, version = parse_wheel_filename(wheel.name)[:2]
    path = wheel.with_name(f"{name}-{version}.cdx.json")
    path.write_text(json.dumps(document(wheel), indent=1) + "\n", encoding="utf-8")
    return path


if __name__ == "__main__":
    print(main(Path(sys.argv[1])))
