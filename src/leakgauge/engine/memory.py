"""How many trials fit side by side, so that a large run is cut into chunks instead of being killed."""

from __future__ import annotations

from collections.abc import Iterator

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


def chunks(trials: int, bytes_per_trial: int, device: torch.device) -> Iterator[list[int]]:
    """Trial indices in chunks that fit; at least one trial each."""
    size = max(1, int(_SHARE * free_bytes(device) / max(1, bytes_per_trial)))
    for start in range(0, trials, size):
        yield list(range(start, min(start + size, trials)))
