"""What this process may still take by the limits that were put on it: of its control groups and of itself.

A container sees all of its host's memory as free, and is killed at its own limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

try:
    import resource
except ImportError:  # not a Unix
    resource = None  # type: ignore[assignment]

_PAGE = 4096 if resource is None else resource.getpagesize()
_SIZE, _DATA = 0, 5  # fields of /proc/self/statm: address space, and data with stack
_NONE = 2**60  # bytes from which a limit is none


def left_by_limits(proc: Path = Path("/proc/self"), groups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Bytes; None where no limit is set."""
    return min([*_of_groups(proc, groups), *_of_process(proc)], default=None)


def _of_groups(proc: Path, groups: Path) -> Iterator[int]:
    """For every control group of ours and those above it."""
    for line in _text(proc / "cgroup").splitlines():
        _, kinds, path = [*line.split(":", 2), "", ""][:3]
        if kinds and "memory" not in kinds.split(","):
            continue
        root = groups / "memory" if kinds else groups
        most, used = ("limit_in_bytes", "usage_in_bytes") if kinds else ("max", "current")
        own = root / path.strip("/")
        for folder in (own, *(p for p in own.parents if p == root or root in p.parents), root):
            limit, taken = (_number(folder / f"memory.{name}") for name in (most, used))
            if limit is not None and taken is not None and limit < _NONE:
                yield max(0, limit - taken + _given_back(folder))


def _given_back(folder: Path) -> int:
    """Files in memory that nobody uses count as taken, and go first."""
    told = dict(line.split(maxsplit=1) for line in _text(folder / "memory.stat").splitlines() if " " in line)
    value = told.get("total_inactive_file", told.get("inactive_file", "0"))
    return int(value) if value.isdigit() else 0


def _of_process(proc: Path) -> Iterator[int]:
    fields = _text(proc / "statm").split()
    if resource is None or len(fields) <= _DATA:
        return
    for kind, field in ((resource.RLIMIT_AS, _SIZE), (resource.RLIMIT_DATA, _DATA)):
        limit, _ = resource.getrlimit(kind)
        if limit != resource.RLIM_INFINITY and limit < _NONE:
            yield max(0, limit - int(fields[field]) * _PAGE)


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, ValueError):
        return ""
