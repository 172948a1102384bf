"""What a reader under test is, and what several of them need: a small model, packed zeros, nested JSON."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from leakgauge.models import load_model
from leakgauge.types import DataSpec

Traps = tuple[bytes, ...]  # handmade contents of a file

TABLE = DataSpec("table", (4,), 3, "tabular")
CANARY = "ran"  # the folder that a trap makes if it is run, beside the file


@dataclass(frozen=True)
class Reader:
    """`make` writes valid files into an empty folder; `file` is the one that gets damaged; `read` reads them."""

    name: str
    file: str
    make: Callable[[Path], object]
    read: Callable[[Path], object]
    traps: Callable[[Path], Traps] = lambda _: ()  # handmade contents of the file


class Runs:
    """Unpickled by a trusting reader, it makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.path,)


@cache
def model() -> torch.nn.Module:
    return load_model("mlp:hidden=5", TABLE, seed=0)


def weights() -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model().state_dict().items()}


def json_traps(_: Path) -> Traps:
    return b"[" * 100_000, b'{"a":' * 100_000, b"[]", b"3", b'{"updates": Infinity}', b'{"updates": 1e400}', b"\xff"


def tarred(members: dict[str, bytes | tuple[bytes, str]]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            if isinstance(content, tuple):
                info.type, info.linkname = content
                archive.addfile(info)
            else:
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def zipped(members: dict[str, bytes], *, link: str = "") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = (0o120777 if name == link else 0o100644) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return out.getvalue()


def npz(**arrays: Any) -> bytes:
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()
