"""Files of ours that name what they belong to and carry a digest: one in another's place, or changed, is refused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from leakgauge.errors import Unreadable
from leakgauge.reading.files import read_json
from leakgauge.reading.tensors import read_safetensors

DIGEST = "digest"
_CHANGED = "its content is not what its digest says"


def sealed(of: str, content: Any) -> bytes:
    """The file's bytes. `of` is what the content belongs to: a key, or words."""
    whole = with_digest({"of": of, "content": content})
    return (json.dumps(whole, indent=1, allow_nan=False) + "\n").encode()


def opened(path: Path, of: str | None = None) -> Any:
    """The content, if the file is whole and belongs to `of`; raises Unreadable with what is wrong."""
    return _content(read_json(path), of, _digest)


def sealed_tensors(of: str, tensors: Mapping[str, Tensor], content: Any) -> bytes:
    """The same for tensors by name and what is to be known about them."""
    whole = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    header = {"of": of, "content": json.dumps(content, allow_nan=False)}
    return save(whole, header | {DIGEST: _digest_of_tensors(header, whole)})


def opened_tensors(path: Path, of: str) -> tuple[dict[str, Tensor], Any]:
    """The tensors and the content, if the file is whole and belongs to `of`; raises Unreadable with what is wrong."""
    tensors, header = read_safetensors(path)
    return tensors, json.loads(_content(header, of, lambda held: _digest_of_tensors(held, tensors)))


def _content(held: Any, of: str | None, digest: Callable[[Any], str]) -> Any:
    if not isinstance(held, dict) or not {"of", "content", DIGEST} <= held.keys():
        raise Unreadable("it is not one of ours")
    if held[DIGEST] != digest(held):
        raise Unreadable(_CHANGED)
    if of is not None and held["of"] != of:
        raise Unreadable("it belongs to something else")
    return held["content"]


def with_digest(plain: Mapping[str, Any]) -> dict[str, Any]:
    """The same with a digest of everything else behind it."""
    return {**plain, DIGEST: _digest(plain)}


def check_digest(plain: Mapping[str, Any]) -> None:
    """Raises Unreadable where there is a digest and the content is not what it says."""
    if plain.get(DIGEST) not in (None, _digest(plain)):
        raise Unreadable(_CHANGED)


def _digest(plain: Mapping[str, Any]) -> str:
    """Of everything but the digest itself."""
    rest = {key: value for key, value in plain.items() if key != DIGEST}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _digest_of_tensors(header: Mapping[str, str], tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(json.dumps([header["of"], header["content"]]).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
