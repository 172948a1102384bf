"""Names for what a result depends on: a hash of settings, of values, of a file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


def key_of(**parts: Any) -> str:
    """A name for everything a result depends on."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def tensors_of(tensors: Iterable[Tensor]) -> str:
    """A hash of values, so that a cell is never reused for other weights or other samples."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def content_of(spec: str | None) -> str:
    """For the user's own files: a hash of what is in them, so that an edit makes new results. Else empty."""
    path = Path((spec or "").split(":")[0])
    return hashlib.sha256(path.read_bytes()).hexdigest() if spec and path.is_file() else ""
