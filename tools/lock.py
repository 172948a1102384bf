"""Writes the files in locks/: every dependency with its version and the hashes of its wheels.

    python tools/lock.py [--cuda]

core.txt is what `make audit` installs, test.txt what `make test` installs. pip picks the versions; a lock then holds
the wheels of each that any of TARGETS could take, so that it serves more machines than the one it was written on. If
pip picks a CPU build of torch, cpu.txt names that one alone. --cuda writes cuda.txt, what the build of torch with CUDA
wants besides; that downloads about 3 GB. No address of an index goes into a lock.

Wheels are listed by pip's own index client, because no public command lists them; it may change (used: pip 23.2).
"""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

ROOT = Path(__file__).parents[1]
LOCKS = ROOT / "locks"
PYTHONS = ((3, 11), (3, 12))
PLATFORMS = {  # sys.platform, platform.system(), platform.machine(), wheels' platform tags
    "Linux x86_64": ("linux", "Linux", "x86_64", r"(manylinux\w*|linux)_x86_64"),
    "Linux aarch64": ("linux", "Linux", "aarch64", r"(manylinux\w*|linux)_aarch64"),
    "macOS arm64": ("darwin", "Darwin", "arm64", r"macosx_\d+_\d+_(arm64|universal2)"),
}
Target = tuple[tuple[int, int], str]
TARGETS: tuple[Target, ...] = tuple(itertools.product(PYTHONS, PLATFORMS))
LINUX = tuple(target for target in TARGETS if target[1].startswith("Linux"))


@dataclass
class Pick:
    """What pip picked: one version of one project, and the wheels of it."""

    name: str
    version: str
    local: str  # "cpu" of 2.13.0+cpu
    file: str
    digest: str
    needs: tuple[Requirement, ...]
    wheels: dict[str, str] = field(default_factory=dict)  # file name to SHA-256

    @property
    def unlisted(self) -> bool:
        return self.digest not in self.wheels.values()


def resolve(requirements: Iterable[str], constraints: Iterable[str] = ()) -> dict[str, Pick]:
    """The picks of pip for these requirements, as if nothing was installed."""
    own = LOCKS / ".constraints"
    own.write_text("".join(f"{line}\n" for line in constraints))
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--dry-run"]
    command += ["--ignore-installed", "--only-binary", ":all:", "--report", "-"]
    command += ["--constraint", str(ROOT / "constraints.txt"), "--constraint", str(own)]
    try:
        told = subprocess.run([*command, *requirements], check=True, stdout=subprocess.PIPE, text=True).stdout
    finally:
        own.unlink()
    return {pick.name: pick for pick in map(_pick, json.loads(told)["install"])}


def _pick(row: dict[str, Any]) -> Pick:
    meta, info = row["metadata"], row["download_info"]
    return Pick(
        name=canonicalize_name(meta["name"]),
        version=meta["version"].partition("+")[0],
        local=meta["version"].partition("+")[2],
        file=unquote(urlsplit(info["url"]).path.rpartition("/")[2]),
        digest=info["archive_info"]["hashes"]["sha256"],
        needs=tuple(map(Requirement, meta.get("requires_dist", ()))),
    )


def fits(wheel: str, target: Target) -> bool:
    """Could this Python on this platform take the wheel?"""
    (major, minor), platform = target
    return any(
        _fits_python(tag.interpreter, tag.abi, major, minor)
        and (tag.platform == "any" or re.fullmatch(PLATFORMS[platform][3], tag.platform))
        for tag in parse_wheel_filename(wheel)[3]
    )


def _fits_python(interpreter: str, abi: str, major: int, minor: int) -> bool:
    found = re.fullmatch(r"(py|cp)(\d)(\d*)", interpreter)
    if not found or int(found[2]) != major:
        return False
    least = int(found[3] or 0)
    if found[1] == "py":
        return abi == "none" and least <= minor
    return (abi == "abi3" and least <= minor) or (abi in ("none", f"cp{major}{minor}") and least == minor)


def published(names: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """(project, file name, SHA-256) of every file that the configured indices list."""
    from pip._internal.commands.download import DownloadCommand
    from pip._internal.index.collector import parse_links

    command = DownloadCommand("download", "")
    options, _ = command.parse_args(["--quiet", "unused"])
    with command.main_context():
        collector = command._build_package_finder(options, command._build_session(options))._link_collector
        for name in names:
            links: list[Any] = []

            def read(page: Any, links: list[Any] = links) -> list[Any]:
                response = None if page.is_file else collector.fetch_response(page)
                links.extend(parse_links(response) if response else ())
                return []

            sources = collector.collect_sources(project_name=name, candidates_from_page=read)
            for source in filter(None, itertools.chain(*sources)):
                list(source.page_candidates())
            for link in links:
                if link.filename.endswith(".whl") and "sha256" in (link._hashes or {}):
                    yield name, link.filename, link._hashes["sha256"]


def add_wheels(picks: dict[str, Pick]) -> None:
    for name, file, digest in published(picks):
        try:
            _, version, *_ = parse_wheel_filename(file)
        except ValueError:
            continue  # names that were allowed once
        if str(version) == picks[name].version and any(fits(file, target) for target in TARGETS):
            picks[name].wheels[file] = digest


def unserved(picks: Iterable[Pick], targets: Iterable[Target]) -> dict[str, list[str]]:
    """Targets for which a pick has no wheel."""
    found = {p.name: [_words(t) for t in targets if not any(fits(file, t) for file in p.wheels)] for p in picks}
    return {name: words for name, words in found.items() if words}


def absent(picks: dict[str, Pick], requirements: Iterable[str], targets: Iterable[Target]) -> set[str]:
    """Names that some target wants and the picks, made on this machine, lack."""
    lacking = set()
    for target in targets:
        environment = _environment(target)
        queue = [(canonicalize_name(r.name), e) for r in map(Requirement, requirements) for e in ("", *r.extras)]
        seen = set()
        while queue:
            name, extra = queue.pop()
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            if name not in picks:
                lacking.add(f"{name} ({_words(target)})")
                continue
            for need in picks[name].needs:
                if _holds(need.marker, environment | {"extra": extra}):
                    queue += [(canonicalize_name(need.name), e) for e in ("", *need.extras)]
    return lacking


def _environment(target: Target) -> dict[str, str]:
    (major, minor), platform = target
    system, name, machine, _ = PLATFORMS[platform]
    version = {"python_version": f"{major}.{minor}", "python_full_version": f"{major}.{minor}.99"}
    python = {"implementation_name": "cpython", "platform_python_implementation": "CPython", "os_name": "posix"}
    return {**version, **python, "sys_platform": system, "platform_system": name, "platform_machine": machine}


def _holds(marker: Marker | None, environment: dict[str, str]) -> bool:
    return marker is None or marker.evaluate(environment)


def _words(target: Target) -> str:
    (major, minor), platform = target
    return f"Python {major}.{minor} on {platform}"


def text(head: str, picks: Iterable[Pick], targets: Iterable[Target]) -> str:
    rows = sorted(picks, key=lambda pick: pick.name)
    lines = [f"# {line}" for line in head.splitlines()]
    lines += [f"# No wheel of {name} for {', '.join(words)}." for name, words in unserved(rows, targets).items()]
    for pick in rows:
        if pick.unlisted:
            lines.append(f"# {pick.digest[:12]}... is {pick.file}, which comes from elsewhere than the others.")
        lines.append(_line(f"{pick.name}=={pick.version}", {*pick.wheels.values(), pick.digest}))
    return "\n".join(lines) + "\n"


def _line(pin: str, digests: Iterable[str]) -> str:
    return " \\\n    ".join([pin, *(f"--hash=sha256:{digest}" for digest in sorted(digests))])


def write(name: str, about: str, picks: Iterable[Pick], targets: Iterable[Target] = TARGETS) -> None:
    pythons = " and ".join(f"{major}.{minor}" for major, minor in PYTHONS)
    platforms = ", ".join(dict.fromkeys(platform for _, platform in targets))
    covered = f"For Python {pythons} on {platforms}: wheels only, so that an install builds nothing."
    head = f"{about} Written by tools/lock.py.\n{covered}"
    (LOCKS / f"{name}.txt").write_text(text(head, picks, targets), encoding="utf-8")


def checked(picks: dict[str, Pick], requirements: Iterable[str], targets: Iterable[Target]) -> dict[str, Pick]:
    if lacking := absent(picks, requirements, targets):
        sys.exit(f"not picked here, wanted elsewhere: {', '.join(sorted(lacking))}")
    return picks


def main() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        declared = tomllib.load(file)
    extras = declared["project"]["optional-dependencies"]
    core = declared["project"]["dependencies"] + declared["build-system"]["requires"]
    full = core + extras["test"] + extras["docs"]
    LOCKS.mkdir(exist_ok=True)
    all_picks = checked(resolve(full), full, TARGETS)
    add_wheels(all_picks)
    write("test", "What `make test` installs: core.txt, the extras test and docs.", all_picks.values())
    pinned = [f"{pick.name}=={pick.version}" for pick in all_picks.values()]
    picks = checked({name: all_picks[name] for name in resolve(core, pinned)}, core, TARGETS)
    write("core", "What `make audit` installs: the dependencies of leakgauge and what builds it.", picks.values())
    torch = picks["torch"]
    if torch.local:
        line = _line(f"{torch.name}=={torch.version}+{torch.local}", [torch.digest])
        about = f"# Beside core.txt or test.txt: this build of torch and no other ({torch.file})."
        (LOCKS / "cpu.txt").write_text(f"{about}\n{line}\n", encoding="utf-8")
    if "--cuda" in sys.argv[1:]:
        exact = f"torch==={torch.version}"  # three signs: no build with a local suffix
        larger = checked(resolve([*core, exact], pinned), core, LINUX)
        besides = {name: pick for name, pick in larger.items() if name not in picks}
        add_wheels(besides)
        write("cuda", "What the build of torch with CUDA wants beside core.txt.", besides.values(), LINUX)


if __name__ == "__main__":
    main()
