"""How many trials fit side by side, so that a large run is cut into chunks instead of being killed."""

from __future__ import annotations

import torch

_SHARE = 0.4  # of the free memory; the rest is for what an estimate misses


def free_bytes(device: torch.device) -> int:
    """Memory that can be had now on `device`."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
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
    said = str(error)
    return isinstance(error, RuntimeError) and ("not enough memory" in said or "can't allocate memory" in said)
