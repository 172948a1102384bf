"""A folder of recorded updates, as `leakgauge.recording.recorder` writes it, and who in it can be attacked together.

Nothing in the folder is trusted: a file that is not what a recorder writes is refused by name, a description can only
point at files beside it, and no file is executed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from leakgauge.client.observe import check_update
from leakgauge.errors import BadInput, Unreadable
from leakgauge.models.adapters import by_model_names
from leakgauge.reading.files import read_json, regular
from leakgauge.reading.sealed import check_digest
from leakgauge.reading.tensors import read_safetensors
from leakgauge.recording.saved_update import refuse_zeros
from leakgauge.types import Batch, Client, SharedUpdate

SCHEMA = 1
LEFT_OUT = "left-out.json"
_MOST = 1 << 53  # of any count; the first whole number that is not exact everywhere


@dataclass(frozen=True)
class Origin:
    """How an update came about, as far as it is known; None is not."""

    samples: int | None = None  # private samples behind the update
    lr: float | None = None  # of the client's plain SGD (weight differences only)
    epochs: int = 1
    batch_size: int = 0  # local mini-batch, 0 for all samples at once
    batchnorm: str = "eval"
    client: str = ""
    round: int = 0

    def __post_init__(self) -> None:
        for name, low in {"samples": 1, "epochs": 1, "batch_size": 0, "round": 0}.items():
            value = getattr(self, name)
            if value is not None and (type(value) is not int or not low <= value < _MOST):
                raise BadInput(
                    f"recorded {name}", allowed=f"a whole number from {low}", got=repr(value), do="correct it"
                )
        if self.lr is not None and not 0 < self.lr < math.inf:
            raise BadInput("recorded lr", allowed="a number above 0", got=repr(self.lr), do="give the client's rate")

    @property
    def steps(self) -> int | None:
        """Local SGD steps behind the update; None if the number of samples is not known."""
        if self.samples is None:
            return self.epochs if self.batch_size == 0 else None
        return self.epochs * -(-self.samples // (self.batch_size or self.samples))


@dataclass(frozen=True)
class Recorded:
    """One recorded update: how it came about and where its tensors lie."""

    name: str
    kind: str
    origin: Origin
    update: Path
    weights: Path | None  # what the client started from
    private: Path | None  # the samples, where they were kept
    sha256: Mapping[str, str] = field(default_factory=dict)  # of these files by name, as far as it was written down

    def local(self) -> Client:
        """The client's local training, as it was recorded."""
        own = self.origin
        if self.kind == "gradient":
            return Client(batchnorm=own.batchnorm)
        if own.lr is None:
            do = "give the clients' training, such as --local kind=fedavg,lr=0.1,epochs=1"
            raise BadInput(f"{self.name}: lr", allowed="known for a weight difference", got="none recorded", do=do)
        return Client(kind="fedavg", epochs=own.epochs, batch_size=own.batch_size, lr=own.lr, batchnorm=own.batchnorm)


def read_folder(folder: Path) -> tuple[Recorded, ...]:
    """Every update that is described in `folder`, oldest first."""
    described = sorted(folder.glob("update-*.json"))
    if not described:
        what, do = f"recorded folder {str(folder)!r}", "record something first (docs: real federations)"
        raise BadInput(what, allowed="one that a Recorder wrote", got="no update-*.json in it", do=do)
    return tuple(_read(path) for path in described)


def left_out(folder: Path, do: str = "record it again") -> int:
    """Updates that the limits kept from being written, as counted in the folder; a bad count is refused with `do`."""
    path = folder / LEFT_OUT
    if not path.exists():
        return 0
    try:
        count = read_json(path)["updates"]
        got = "" if type(count) is int and 0 <= count < _MOST else "another count"
    except (Unreadable, LookupError, TypeError) as error:
        got = type(error).__name__
    if got:
        raise BadInput(str(path), allowed="as a recorder wrote it", got=got, do=do)
    return int(count)


def side_by_side(entries: Sequence[Recorded]) -> list[tuple[Recorded, ...]]:
    """Updates of clients that had the same weights and did the same: the trials of one attack."""
    groups: dict[Any, list[Recorded]] = {}
    for entry in entries:
        own = dataclasses.replace(entry.origin, client="", round=0)
        groups.setdefault((entry.weights, entry.kind, own, entry.private is None), []).append(entry)
    return [tuple(group) for group in groups.values()]


def tensors_of(entry: Recorded, model: nn.Module) -> SharedUpdate:
    """The update (T = 1), held against the model; zeros only, or what is not finite, is refused."""
    tensors = {n: (t if t.dtype == torch.float64 else t.float())[None] for n, t in _load(entry, entry.update).items()}
    named = dict(model.named_parameters())
    tensors = by_model_names(tensors, named)
    buffers = {n: tensors.pop(n) for n, _ in model.named_buffers() if n in tensors}
    for name in [n for n in tensors if n in named and not named[n].requires_grad]:
        del tensors[name]  # a frozen one comes with the whole model and shows nothing
    update = SharedUpdate(entry.kind, tensors, buffers)
    check_update(model, update)
    refuse_zeros(update, f"update {entry.name}", "check that this client trained on something")
    return update


def weights_of(entry: Recorded) -> Path | None:
    """What the client started from, the file that was written."""
    if entry.weights is not None:
        _check_content(entry, entry.weights)
    return entry.weights


def private_of(entries: Sequence[Recorded]) -> Batch | None:
    """What the clients kept to themselves, (T, N, ...); None unless it was kept for all of them."""
    kept = [_load(entry, entry.private) for entry in entries if entry.private is not None]
    if not kept or len(kept) < len(entries):
        return None
    for entry, batch in zip(entries, kept, strict=True):
        if batch.keys() != {"inputs", "labels"} or not _is_batch(**batch, like=kept[0]):
            raise _refused(entry.private or entry.update, "no inputs and labels of the same number of samples")
    return Batch(torch.stack([b["inputs"] for b in kept]), torch.stack([b["labels"] for b in kept]).long())


def _is_batch(inputs: Tensor, labels: Tensor, like: Mapping[str, Tensor]) -> bool:
    """Finite samples with a class each, and of the same number and shape as the others'."""
    if inputs.shape != like["inputs"].shape or labels.shape != like["labels"].shape or labels.dim() != 1:
        return False
    if inputs.dim() < 2 or len(inputs) != len(labels) or len(labels) == 0:
        return False
    numbers = inputs.is_floating_point() and bool(torch.isfinite(inputs).all())
    return numbers and labels.dtype == torch.int64 and int(labels.min()) >= 0


def _read(path: Path) -> Recorded:
    try:
        plain = read_json(path)
        if not isinstance(plain, dict) or plain.get("schema") != SCHEMA:
            raise Unreadable("another schema" if isinstance(plain, dict) else type(plain).__name__)
        check_digest(plain)
    except Unreadable as error:
        raise _refused(path, str(error)) from error
    kind, sha256 = plain.get("kind"), plain.get("sha256", {})
    known = {field.name: plain[field.name] for field in dataclasses.fields(Origin) if field.name in plain}
    texts = all(isinstance(known.get(name, ""), str) for name in ("batchnorm", "client"))
    update, weights, private = (_beside(path, plain.get(name)) for name in ("update", "weights", "private"))
    if kind not in ("gradient", "weight_delta"):
        raise _refused(path, f"kind {kind!r}")
    if not texts or not isinstance(known.get("lr"), (int, float, type(None))):
        raise _refused(path, "a value of another type")
    if update is None:
        raise _refused(path, "no update file")
    if not isinstance(sha256, dict) or not all(isinstance(value, str) for value in sha256.values()):
        raise _refused(path, "checksums of another type")
    return Recorded(path.stem, kind, Origin(**known), update, weights, private, sha256)


def _beside(description: Path, name: object) -> Path | None:
    """A file in the same folder; nothing a description says leads out of it."""
    if name is None:
        return None
    odd = not isinstance(name, str) or len(name) > 199 or "\0" in name or not name.endswith(".safetensors")
    if odd or Path(str(name)).name != name:
        raise _refused(description, f"the file name {name!r}")
    return description.with_name(str(name))


def _load(entry: Recorded, path: Path) -> dict[str, Tensor]:
    _check_content(entry, path)
    try:
        return read_safetensors(path)[0]
    except Unreadable as error:
        raise _refused(path, str(error)) from error


def _check_content(entry: Recorded, path: Path) -> None:
    """Refuses a file that is another one than was written there."""
    wanted = entry.sha256.get(path.name)
    if wanted is None:
        return
    try:
        with regular(path).open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _refused(path, error.strerror or str(error)) from error
    if found != wanted:
        raise _refused(path, f"another content than {entry.name}.json says")


def _refused(path: Path, got: str) -> BadInput:
    return BadInput(f"recorded file {str(path)!r}", allowed="as a recorder writes it", got=got, do="record it again")
