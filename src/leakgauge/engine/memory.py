"""How many trials fit side by side, so that a large run is cut into batches instead of being killed.

A container sees all of its host's memory as free and is killed at its own limit, so the limits of this process and of
its control groups count too.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import torch

try:
    import resource
except ImportError:  # not a Unix
    resource = None  # type: ignore[assignment]

_MESSAGES = (
    "not enough memory",
    "can't allocate memory",
    "Cannot allocate memory",
    "bad_alloc",
    "could not create a primitive",  # of a CPU's convolutions, which ask for memory of their own
    "can't start new thread",
)
_SHARE = 0.4  # of the free memory; the rest is for what an estimate misses
_NO_LIMIT = 2**60  # bytes from which a limit is none
_allowed: int | None = None  # bytes that this process may use, if that was set
_processes = 1  # that share the machine, this one included
_of_gpu = 1.0  # this process's share of a GPU


def share_memory(processes: int, allowed: int | None, of_gpu: float = 1.0) -> None:
    """This process is one of so many, or may use `allowed` bytes, whatever is free."""
    global _allowed, _processes, _of_gpu
    _processes, _allowed, _of_gpu = processes, allowed, of_gpu


def fitting(bytes_per_trial: int, device: torch.device) -> int:
    """How many trials fit side by side; at least one."""
    return max(1, int(_SHARE * free_bytes(device) / max(1, bytes_per_trial)))


def free_bytes(device: torch.device) -> int:
    """Memory that can be had now on `device`."""
    if device.type == "cpu" and _allowed is not None:
        return _allowed
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return int(min(free, _of_gpu * total))
    available = 4 * 2**30  # not Linux: a modest machine
    for line in _text(Path("/proc/meminfo")).splitlines():
        if line.startswith("MemAvailable:"):
            available = int(line.split()[1]) * 1024
    limit = left_by_limits()
    return (available if limit is None else min(available, limit)) // _processes


def is_out_of_memory(error: BaseException) -> bool:
    """torch has an error of its own for GPUs; on the CPU it is a plain RuntimeError from the allocator."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if isinstance(error, SystemError):  # what a library says that found no memory
        return left_by_limits() is not None
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _MESSAGES)


def left_by_limits(proc: Path = Path("/proc/self"), groups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Bytes that this process may still take by its limits; None if no limit is set."""
    return min([*_by_groups(proc, groups), *_by_process(proc)], default=None)


def _by_groups(proc: Path, groups: Path) -> Iterator[int]:
    """For every control group of ours and those above it."""
    for line in _text(proc / "cgroup").splitlines():
        _, kinds, path = [*line.split(":", 2), "", ""][:3]
        if kinds and "memory" not in kinds.split(","):
            continue
        root = groups / "memory" if kinds else groups
        names = ("limit_in_bytes", "usage_in_bytes") if kinds else ("max", "current")
        own = root / path.strip("/")
        for folder in (own, *(p for p in own.parents if p == root or root in p.parents), root):
            limit, taken = (_text(folder / f"memory.{name}").strip() for name in names)
            if limit.isdigit() and taken.isdigit() and int(limit) < _NO_LIMIT:
                yield max(0, int(limit) - int(taken) + _reclaimable(folder))


def _reclaimable(folder: Path) -> int:
    """Cached files that nobody uses count as taken, and are dropped first."""
    stat = dict(line.split(maxsplit=1) for line in _text(folder / "memory.stat").splitlines() if " " in line)
    value = stat.get("total_inactive_file", stat.get("inactive_file", "0"))
    return int(value) if value.isdigit() else 0


def _by_process(proc: Path) -> Iterator[int]:
    pages = _text(proc / "statm").split()
    if resource is None or len(pages) < 6:
        return
    for kind, used in ((resource.RLIMIT_AS, pages[0]), (resource.RLIMIT_DATA, pages[5])):
        limit, _ = resource.getrlimit(kind)
        if limit != resource.RLIM_INFINITY and limit < _NO_LIMIT:
            yield max(0, limit - int(used) * resource.getpagesize())


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, ValueError):
        return ""
