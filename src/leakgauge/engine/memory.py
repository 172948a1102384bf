"""How many trials fit side by side, so that a large run is cut into chunks instead of being killed."""

from __future__ import annotations

import errno

import torch

from leakgauge.engine.allowed_memory import left_by_limits

_SAID = ("not enough memory", "can't allocate memory", "Cannot allocate memory", "bad_alloc", "can't start new thread")
_SHARE = 0.4  # of the free memory; the rest is for what an estimate misses
_allowed: int | None = None  # bytes, where somebody said how many this process may use
_processes = 1  # that share the machine with this one, itself among them
_of_gpu = 1.0  # the share of a GPU that is this process's own


def share_memory(processes: int, allowed: int | None, of_gpu: float = 1.0) -> None:
    """This process is one of so many, or may use so many bytes: what fits then does not depend on what is free."""
    global _allowed, _processes, _of_gpu
    _processes, _allowed, _of_gpu = processes, allowed, of_gpu


def free_bytes(device: torch.device) -> int:
    """Memory that can be had now on `device`."""
    if device.type == "cpu" and _allowed is not None:
        return _allowed
    if device.type == "cuda":
        free, there = torch.cuda.mem_get_info(device)
        return int(min(free, _of_gpu * there))
    there, limit = _available(), left_by_limits()
    return (there if limit is None else min(there, limit)) // _processes


def _available() -> int:
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            found = dict(line.split(":", 1) for line in lines)
        return int(found["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):  # not Linux: a modest machine
        return 4 * 2**30


def fitting(bytes_per_trial: int, device: torch.device) -> int:
    """How many trials fit side by side; at least one."""
    return max(1, int(_SHARE * free_bytes(device) / max(1, bytes_per_trial)))


def is_out_of_memory(error: BaseException) -> bool:
    """torch has an error of its own for GPUs; on the CPU it is a plain RuntimeError from the allocator."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    if isinstance(error, SystemError) and left_by_limits() is not None:  # what a library says that found none
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _SAID)
