"""Which samples a generator has seen, without keeping them: a short hash of each.

A generator that was trained on the victims finds them too easily; these hashes show it, whatever the file was called.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor


def fingerprints(samples: Tensor) -> Tensor:
    """(M, *shape) in [0, 1] -> (M,) int64. Values are rounded to bytes first, so precision does not matter."""
    rows = samples.flatten(1).mul(255).round().to(torch.uint8).cpu().numpy()
    hashes = [int.from_bytes(hashlib.sha256(row.tobytes()).digest()[:8], "little", signed=True) for row in rows]
    return torch.tensor(hashes, dtype=torch.int64)
