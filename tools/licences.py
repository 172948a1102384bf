"""Which projects leakgauge brings along, and under which licence each says it stands.

    python tools/licences.py

writes the tables in docs/reference/dependencies.md anew from what is installed. Only metadata is read: libraries of
others that a wheel carries inside (OpenBLAS, compilers' run-time libraries) have their licences in that wheel.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import lockfile
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "dependencies.md"
# May be used, changed and given on beside a work under Apache-2.0; MPL-2.0 asks for changes to its own files alone.
PERMISSIVE = {
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "MIT-CMU",
    "MPL-2.0",
    "PSF-2.0",
    "Zlib",
    "Apache Software License",
    "BSD License",
    "Public Domain",
    "Python Software Foundation License",
}
OTHER = {"gmpy2": "LGPL-3.0-or-later"}  # of extras: named one by one, installed only by who asks for them
SPELLINGS = {  # what stands in the field License, where it is no text but no identifier either
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "BSD 3-Clause License": "BSD-3-Clause",
    "ISC License": "ISC",
    "MIT License": "MIT",
}
CLASSIFIERS = {"MIT License": "MIT", "ISC License (ISCL)": "ISC", "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0"}
USERS = ("encryption", "flower", "generative", "lightning", "privacy", "ray")  # extras for others than us


def declared() -> dict[str, list[str]]:
    """Requirements of the core (under "") and of every extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {"": project["dependencies"], **project["optional-dependencies"]}


def brought(requirements: Iterable[str]) -> dict[str, Distribution | None]:
    """Every project that these bring along, in order of names; None where it is not installed."""
    queue = list(map(Requirement, requirements))
    seen: set[tuple[str, str]] = set()
    found: dict[str, Distribution | None] = {}
    while queue:
        requirement = queue.pop()
        name = canonicalize_name(requirement.name)
        for extra in {"", *requirement.extras} - {e for n, e in seen if n == name}:
            seen.add((name, extra))
            found[name] = _installed(name)
            queue += needs(found[name], extra)
    return dict(sorted(found.items()))


def _installed(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def needs(project: Distribution | None, extra: str = "") -> list[Requirement]:
    """What a project wants on this machine, for itself or for one of its extras."""
    told = map(Requirement, project.requires or () if project else ())
    return [need for need in told if need.marker is None or need.marker.evaluate({"extra": extra})]


def licence(project: Distribution) -> tuple[str, ...]:
    """An SPDX expression, or else the names that the project's classifiers give; empty if it says nothing of use."""
    metadata = project.metadata
    if metadata["License-Expression"]:
        return (metadata["License-Expression"],)
    told = metadata["License"] or ""  # an identifier, a name, or a whole text
    told = SPELLINGS.get(told, told)
    if set(terms(told)) <= PERMISSIVE:
        return (told,)
    ends = [c.rpartition(" :: ")[2] for c in metadata.get_all("Classifier") or () if c.startswith("License ::")]
    return tuple(CLASSIFIERS.get(end, end) for end in ends)


def terms(expression: str) -> list[str]:
    return re.split(r" (?:AND|OR) ", re.sub(r"[()]", "", expression))


def table(projects: dict[str, Distribution | None]) -> str:
    rows = [f"| {name} | {', '.join(licence(project))} |" for name, project in projects.items() if project]
    return "\n".join(["| project | licence |", "|---|---|", *rows])


def core() -> dict[str, Distribution | None]:
    """What everybody gets; what only the build of torch with CUDA brings is NVIDIA's, and named in cuda.txt."""
    return {name: project for name, project in brought(declared()[""]).items() if name not in lockfile.read("cuda")}


def extras() -> dict[str, Distribution | None]:
    """What the extras for users bring besides."""
    left_out = core().keys() | lockfile.read("cuda").keys()
    found = brought(line for extra in USERS for line in declared()[extra])
    return {name: project for name, project in found.items() if name not in left_out}


def page(text: str) -> str:
    """The page with the tables of what is installed between its marks."""
    for mark, projects in {"core": core(), "extras": extras()}.items():
        rows = table(projects)
        start, end = f"<!-- licences: {mark} -->", f"<!-- end of {mark} -->"
        text = re.sub(f"{start}.*?{end}", lambda _, new=f"{start}\n{rows}\n{end}": new, text, flags=re.DOTALL)
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
