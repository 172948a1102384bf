"""JSON of ours that says what it is and carries a digest: one in another's place, or changed, is not believed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from leakgauge.errors import Unreadable
from leakgauge.reading.plain import read_json

DIGEST = "digest"


def sealed(of: str, content: Any) -> bytes:
    """The file's bytes. `of` is what the content belongs to: a key, or words."""
    whole = with_digest({"of": of, "content": content})
    return (json.dumps(whole, indent=1, allow_nan=False) + "\n").encode()


def opened(path: Path, of: str | None = None) -> Any:
    """The content, if the file is whole and belongs to `of`; raises Unreadable with what is wrong."""
    whole = read_json(path)
    if not isinstance(whole, dict) or not {"of", "content", DIGEST} <= whole.keys():
        raise Unreadable("it is not one of ours")
    check_digest(whole)
    if of is not None and whole["of"] != of:
        raise Unreadable("it belongs to something else")
    return whole["content"]


def with_digest(plain: Mapping[str, Any]) -> dict[str, Any]:
    """The same with a digest of everything else behind it."""
    return {**plain, DIGEST: _digest(plain)}


def check_digest(plain: Mapping[str, Any]) -> None:
    """Raises Unreadable where there is a digest and the content is not what it says."""
    told = plain.get(DIGEST)
    if told is not None and told != _digest({k: v for k, v in plain.items() if k != DIGEST}):
        raise Unreadable("its content is not what its digest says")


def _digest(plain: Mapping[str, Any]) -> str:
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
