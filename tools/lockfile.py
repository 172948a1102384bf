"""Reads a file of locks/: names, versions, and the hashes that the files of each may have."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

LOCKS = Path(__file__).parents[1] / "locks"


class Pin(NamedTuple):
    version: str
    digests: tuple[str, ...]  # SHA-256, one per file


def read(name: str) -> dict[str, Pin]:
    """read("core")["torch"]; whatever is not a pin with hashes raises."""
    text = re.sub(r"^#.*\n", "", (LOCKS / f"{name}.txt").read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(map(_pin, text.replace("\\\n", " ").splitlines()))


def _pin(line: str) -> tuple[str, Pin]:
    found = re.fullmatch(r"([a-z0-9-]+)==(\S+)((?: +--hash=sha256:[0-9a-f]{64})+)", line)
    if not found:
        raise ValueError(f"not a pin with hashes: {line[:80]}")
    return found[1], Pin(found[2], tuple(re.findall(r"[0-9a-f]{64}", found[3])))
