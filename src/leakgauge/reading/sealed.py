"""Files of ours that say what they are and carry a digest: one in another's place, or changed, is not believed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from leakgauge.errors import Unreadable
from leakgauge.reading.plain import read_json
from leakgauge.reading.tensors import read_safetensors

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


def sealed_tensors(of: str, tensors: Mapping[str, Tensor], content: Any) -> bytes:
    """The same for tensors by name and what is to be known about them."""
    whole = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    told = json.dumps(content, allow_nan=False)
    return save(whole, {"of": of, "content": told, DIGEST: _digest_of_tensors(of, whole, told)})


def opened_tensors(path: Path, of: str) -> tuple[dict[str, Tensor], Any]:
    """The tensors and the content, if the file is whole and belongs to `of`; raises Unreadable with what is wrong."""
    tensors, header = read_safetensors(path)
    if not {"of", "content", DIGEST} <= header.keys():
        raise Unreadable("it is not one of ours")
    if header[DIGEST] != _digest_of_tensors(header["of"], tensors, header["content"]):
        raise Unreadable("its content is not what its digest says")
    if header["of"] != of:
        raise Unreadable("it belongs to something else")
    return tensors, json.loads(header["content"])


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


def _digest_of_tensors(of: str, tensors: Mapping[str, Tensor], content: str) -> str:
    digest = hashlib.sha256(json.dumps([of, content]).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
