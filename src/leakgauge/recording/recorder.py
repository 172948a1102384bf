"""Record updates from an ordinary training loop, to be audited later.

    recorder = Recorder("recorded")
    with recorder.weight_delta(model, samples=len(inputs), lr=0.1):
        train_one_round(model)

or, where one gradient is what a client would share, `recorder.gradient(model, samples=...)` between `backward()` and
the optimiser's step. `leakgauge audit --recorded FOLDER` attacks it.

The folder holds, for each update, its tensors by parameter name (safetensors), the weights the client started from
(once for all updates that share them) and a JSON file with how it came about. All of them can be read by their owner
only: an update may be as telling as the samples behind it. The private samples themselves are written only where
`keep_private=True` asks for it. What the folder may grow to is bounded; the oldest updates stay, later ones are counted
and left out. One process writes one folder.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from leakgauge.client.naming import plain_name
from leakgauge.errors import BadInput
from leakgauge.reading.files import make_folder, write_whole
from leakgauge.reading.sealed import with_digest
from leakgauge.recording.recorded_folder import LEFT_OUT, SCHEMA, Origin, left_out


class Recorder:
    """Writes updates into `folder`: at most `updates` of them and `megabytes` in all, the oldest kept."""

    def __init__(
        self, folder: str | Path, *, updates: int = 100, megabytes: float = 1024, keep_private: bool = False
    ) -> None:
        if updates < 1 or not megabytes > 0:
            got = f"updates={updates}, megabytes={megabytes}"
            raise BadInput("recorder limits", allowed="at least 1 update and above 0 MB", got=got, do="raise them")
        self.folder, self.most, self.most_bytes = Path(folder), updates, int(megabytes * 2**20)
        self.keep_private = keep_private
        make_folder(self.folder)
        self.written = len(list(self.folder.glob("update-*.json")))  # a restarted loop goes on behind the last
        self.bytes = sum(path.stat().st_size for path in self.folder.glob("*.safetensors"))
        self.left_out = left_out(self.folder, "move it away, or record into another folder")

    @property
    def full(self) -> bool:
        """Was something left out already? Then all that comes later is, so that what stays has no holes in it."""
        return self.left_out > 0 or self.written >= self.most

    @contextmanager
    def weight_delta(
        self, model: nn.Module, *, private: tuple[Tensor, Tensor] | None = None, **origin: Any
    ) -> Iterator[None]:
        """Record how the weights move inside the block. `origin` are fields of `Origin`; nothing if the block fails."""
        about = Origin(**origin)
        before = None if self.full else state_of(model)
        yield
        if before is None:
            self._leave_out()
            return
        after = state_of(model)
        moved = {n: after[n] - before[n] for n in trainable(model)}
        buffers = {n: after[n] for n in _running_statistics(model)}
        about = dataclasses.replace(about, batchnorm=batchnorm_mode(model))
        self.add("weight_delta", moved, about, buffers=buffers, weights=before, private=private)

    def gradient(self, model: nn.Module, *, private: tuple[Tensor, Tensor] | None = None, **origin: Any) -> None:
        """Record the gradients that `backward()` left; call it before the optimiser's step."""
        about = Origin(**origin)
        if self.full:
            self._leave_out()
            return
        parameters = trainable(model)
        if all(p.grad is None for p in parameters.values()):
            raise BadInput("model", allowed="one with gradients", got="none", do="call gradient() after backward()")
        tensors = {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in parameters.items()}
        about = dataclasses.replace(about, batchnorm=batchnorm_mode(model))
        self.add("gradient", tensors, about, weights=state_of(model), private=private)

    def add(
        self,
        kind: str,
        tensors: Mapping[str, Tensor],
        origin: Origin,
        *,
        buffers: Mapping[str, Tensor] | None = None,
        weights: Mapping[str, Tensor] | None = None,
        private: tuple[Tensor, Tensor] | None = None,
    ) -> bool:
        """Write one update by parameter name; False if the limits leave it out."""
        if self.full:  # before anything is packed: a long training goes on for thousands of rounds after this
            self._leave_out()
            return False
        name = f"update-{self.written:05d}"
        files = {f"{name}.safetensors": _packed({**tensors, **(buffers or {})})}
        if weights is not None:
            content = _packed(weights)
            files[f"weights-{hashlib.sha256(content).hexdigest()[:16]}.safetensors"] = content
        if private is not None and self.keep_private:
            files[f"private-{self.written:05d}.safetensors"] = _packed({"inputs": private[0], "labels": private[1]})
        # Weights are named by their content: those that are there need not be written again.
        there = {file for file in files if file.startswith("weights-") and (self.folder / file).is_file()}
        new = {file: content for file, content in files.items() if file not in there}
        size = sum(map(len, new.values()))
        if self.bytes + size > self.most_bytes:
            self._leave_out()
            return False
        for file, content in new.items():
            write_whole(self.folder / file, content, private=True)
        described = {
            "schema": SCHEMA,
            "kind": kind,
            **dataclasses.asdict(origin),
            "steps": origin.steps,
            "tensors": {n: list(t.shape) for n, t in tensors.items()},
            "update": f"{name}.safetensors",
            "weights": next((f for f in files if f.startswith("weights-")), None),
            "private": next((f for f in files if f.startswith("private-")), None),
            "sha256": {file: hashlib.sha256(content).hexdigest() for file, content in files.items()},
        }
        # Last of all: an update is there once it is described, so that one that was cut off is written anew.
        write_whole(self.folder / f"{name}.json", json.dumps(with_digest(described), indent=1).encode(), private=True)
        self.written, self.bytes = self.written + 1, self.bytes + size
        return True

    def _leave_out(self) -> None:
        if self.left_out == 0:
            warnings.warn(
                f"{self.folder} holds its {self.written} updates, {self.bytes / 2**20:.1f} MB; later ones are left out "
                "(raise updates= or megabytes=)",
                stacklevel=4,
            )
        self.left_out += 1
        counted = {"updates": self.left_out, "most_updates": self.most, "most_bytes": self.most_bytes}
        write_whole(self.folder / LEFT_OUT, json.dumps(counted).encode())


def state_of(model: nn.Module) -> dict[str, Tensor]:
    """A copy of parameters and buffers on the CPU, by name."""
    return {plain_name(n): t.detach().cpu().clone() for n, t in model.state_dict().items()}


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    return {plain_name(n): p for n, p in model.named_parameters() if p.requires_grad}


def _running_statistics(model: nn.Module) -> list[str]:
    """Names of the buffers that move in training and are no counters."""
    kept = model.state_dict().keys()
    return [plain_name(n) for n, b in model.named_buffers() if b.is_floating_point() and n in kept]


def batchnorm_mode(model: nn.Module) -> str:
    return "train" if any(isinstance(m, _BatchNorm) and m.training for m in model.modules()) else "eval"


def _packed(tensors: Mapping[str, Tensor]) -> bytes:
    return save({n: t.detach().cpu().clone().contiguous() for n, t in tensors.items()})
