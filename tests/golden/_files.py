"""Golden files on disk: JSON that a person can compare, and arrays beside it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
ATTACKS, COMMANDS = HERE / "attacks", HERE / "commands"


def write_document(path: Path, document: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = (_laid_out(document, 4) + "\n").encode()
    path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)


def _laid_out(value: Any, levels: int, margin: str = "") -> str:
    """JSON with a line for each entry of the first levels, and what lies deeper on that line."""
    if not levels or not value or not isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False)
    inner = margin + " "
    if isinstance(value, dict):
        lines = [f"{inner}{json.dumps(key)}: {_laid_out(entry, levels - 1, inner)}" for key, entry in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{margin}}}"
    lines = [inner + _laid_out(entry, levels - 1, inner) for entry in value]
    return "[\n" + ",\n".join(lines) + f"\n{margin}]"


def read_document(path: Path) -> Any:
    stored = path.read_bytes()
    return json.loads(gzip.decompress(stored) if path.suffix == ".gz" else stored)


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Compressed, without pickles; the same arrays give the same bytes."""
    np.savez_compressed(path, **arrays)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}
