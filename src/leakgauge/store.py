"""What a run leaves on disk, so that finished work is never done twice and an interrupted run can go on.

RUN/truth.safetensors            the private samples, for the pictures
RUN/cells/KEY.safetensors        one finished cell: its reconstructions, and its findings as JSON in the header
RUN/report.{json,html,md,xml}    written by `leakgauge.report`
A key is a hash of everything the cell depends on, so a changed scenario never meets an old cell. Files are written
beside their place and renamed; they hold private samples, so only their owner may read them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from leakgauge.files import make_folder, write_whole
from leakgauge.types import Finding, Pictures


class Store:
    """One run directory; `make` creates it, so that a place that cannot be written is found at once."""

    def __init__(self, folder: Path, *, make: bool = True) -> None:
        self.folder = folder
        if make:
            make_folder(folder / "cells")

    def save_cell(self, key: str, findings: Sequence[Finding], recovered: Tensor | None) -> None:
        rows = json.dumps([dataclasses.asdict(f) for f in findings], allow_nan=False)
        tensors = {} if recovered is None else {"recovered": recovered.detach().float().cpu().contiguous()}
        self._write(self._cell(key), tensors, {"findings": rows})

    def load_cell(self, key: str) -> tuple[list[Finding], Tensor | None] | None:
        """A finished cell, or None if it is not there or cannot be read (then it is done again)."""
        try:
            with safe_open(self._cell(key), framework="pt") as file:
                rows = json.loads(file.metadata()["findings"])
                recovered = file.get_tensor("recovered") if "recovered" in file.keys() else None  # noqa: SIM118
        except (OSError, SafetensorError, ValueError, KeyError, TypeError):
            return None
        findings = [
            Finding(**row | {name: tuple(row.get(name, ())) for name in ("records", "flags", "ranks", "trace")})
            for row in rows
        ]
        return findings, recovered

    def save_truth(self, truth: Tensor) -> None:
        self._write(self.folder / "truth.safetensors", {"inputs": truth.detach().cpu().contiguous()}, {})

    def save_cells_of_report(self, names: Mapping[str, str]) -> None:
        """Which cell of the table is in which file: cell name -> key."""
        write_whole(self.folder / "cells.json", json.dumps(dict(names), indent=2).encode())

    def pictures(self) -> Pictures | None:
        """The pictures of a finished run, for `leakgauge report`; None if there are none."""
        try:
            with safe_open(self.folder / "truth.safetensors", framework="pt") as file:
                truth = file.get_tensor("inputs")
            names: dict[str, str] = json.loads((self.folder / "cells.json").read_text())
        except (OSError, SafetensorError, ValueError):
            return None
        recovered = {}
        for name, key in names.items():
            cell = self.load_cell(key)
            if cell and cell[1] is not None:
                recovered[name] = cell[1]
        return Pictures(truth, recovered)

    def _cell(self, key: str) -> Path:
        return self.folder / "cells" / f"{key}.safetensors"

    def _write(self, path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> None:
        write_whole(path, save(dict(tensors) or {"empty": torch.zeros(0)}, metadata), private=True)


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
